#include "thread_pool.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace outrider {
namespace {

// A step of a pass takes tens of microseconds, and waking a sleeping thread takes about as long.
constexpr auto kSpin = std::chrono::microseconds(5);
constexpr auto kYield = std::chrono::microseconds(50);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until value differs from old: spins; then spins on, but lets others run in between, among whom may be the very
// thread waited for; then sleeps.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto start = std::chrono::steady_clock::now();
  for (auto waited = start - start; waited < kYield; waited = std::chrono::steady_clock::now() - start) {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
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
  if (num_threads < 1 || num_threads > 256) {
    throw std::invalid_argument("num_threads is " + std::to_string(num_threads) + "; it must be between 1 and 256");
  }
  state_ = std::make_unique<State>();
  try {
    for (int i = 1; i < num_threads; ++i) state_->workers.emplace_back([s = state_.get(), i] { s->work(i); });
  } catch (...) {
    state_->stop();  // no more threads to be had: let those that started go
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(const std::function<void(int)>& task) {
  State& s = *state_;
  s.start_call(&task);
  s.call_task(0);
  for (uint32_t left; (left = s.unfinished.load(std::memory_order_acquire)) != 0;) wait_for_change(s.unfinished, left);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace outrider
