// Where the threads of a pass meet between its steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace outrider {

// A step takes microseconds, so a thread that arrives early spins; if another has lost its processor, it sleeps.
class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads) {}

  void arrive_and_wait() {
    const uint32_t step = step_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      step_.fetch_add(1, std::memory_order_release);
      step_.notify_all();
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
    do {
      for (int i = 0; i < 64; ++i) {
        if (step_.load(std::memory_order_acquire) != step) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    } while (std::chrono::steady_clock::now() < deadline);
    while (step_.load(std::memory_order_acquire) == step) step_.wait(step, std::memory_order_acquire);
  }

 private:
  const int num_threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> step_{0};
};

}  // namespace outrider
