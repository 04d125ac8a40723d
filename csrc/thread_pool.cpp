#include "thread_pool.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "spin.h"

namespace outrider {
namespace {

// A step of a pass takes tens of microseconds, and waking a sleeping thread takes about as long.
constexpr auto kSpin = std::chrono::microseconds(5);
constexpr auto kYield = std::chrono::microseconds(50);

// Waits until value differs from old: spins; then spins on, but lets others run in between, among whom may be the very
// thread waited for; then sleeps.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto start = std::chrono::steady_clock::now();
  for (auto waited = start - start; waited < kYield; waited = std::chrono::steady_clock::now() - start) {
    if (changes_shortly(value, old)) return;
    if (waited > kSpin) std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  // Each on its own cache line: workers watch one while the caller watches the other.
  alignas(64) std::atomic<uint32_t> call{0};       // counts run() calls; workers wait for it to change
  alignas(64) std::atomic<uint32_t> unfinished{0};  // workers still inside the present call
  const std::function<void(int)>* task = nullptr;   // nullptr: workers leave
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;
  const pid_t process = getpid();

  // In a child made by fork() the workers are missing: nobody may wait for them.
  bool has_lost_workers() const { return !workers.empty() && getpid() != process; }

  void call_task(int thread_index) {
    try {
      (*task)(thread_index);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }

  void work(int thread_index) {
    for (uint32_t seen = 0;; ++seen) {
      wait_for_change(call, seen);
      if (task == nullptr) return;
      call_task(thread_index);
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
    }
  }

  void start_call(const std::function<void(int)>* next_task) {
    task = next_task;
    unfinished.store(static_cast<uint32_t>(workers.size()), std::memory_order_relaxed);
    call.fetch_add(1, std::memory_order_release);
    call.notify_all();
  }

  void stop() {
    start_call(nullptr);
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw std::invalid_argument("num_threads is " + std::to_string(num_threads) + "; it must be between 1 and " +
                                std::to_string(kMaxThreads));
  }
  state_ = std::make_unique<State>();
  State& s = *state_;
  s.workers.reserve(static_cast<size_t>(num_threads));
  try {
    for (int i = 1; i < num_threads; ++i) s.workers.emplace_back([&s, i] { s.work(i); });
  } catch (const std::system_error& error) {
    const std::string had = std::to_string(this->num_threads());
    s.stop();
    throw std::invalid_argument("num_threads is " + std::to_string(num_threads) +
                                ", but the system allows no more than " + had + " here (" + error.what() +
                                "); use fewer threads, or raise its limits");
  } catch (...) {
    s.stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (state_->has_lost_workers()) (void)state_.release();  // can be neither joined nor destroyed
  else state_->stop();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(const std::function<void(int)>& task) {
  State& s = *state_;
  if (s.has_lost_workers())
    throw std::invalid_argument("the model's threads stayed behind in process " + std::to_string(s.process) +
                                ", which this one was forked from; load the model after forking");
  s.start_call(&task);
  s.call_task(0);
  while (const uint32_t left = s.unfinished.load(std::memory_order_acquire)) wait_for_change(s.unfinished, left);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace outrider
