// Where the threads of a pass meet between its steps.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "spin.h"

namespace outrider {

// Steps take microseconds and a sleeping thread takes longer than that to wake, so a thread that arrives early spins.
// But where threads share a processor (the machine is busy with other work), whoever spins keeps the one it waits for
// from running. So a spin in vain is followed by waits that sleep almost at once, then by another trial: by few where
// that was the first in a while, for somebody who looks in now and then, such as a server's event loop, is no reason to
// pay for waking up at hundreds of steps; by twice as many after each that is in vain again.
class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads) {}

  void arrive_and_wait() {
    const uint32_t step = step_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      step_.fetch_add(1, std::memory_order_release);
      step_.notify_all();
    } else if (!spin(step)) {
      while (step_.load(std::memory_order_acquire) == step) step_.wait(step, std::memory_order_acquire);
    }
  }

 private:
  static constexpr auto kSpin = std::chrono::microseconds(50);
  static constexpr int kFewShortWaits = 2, kShortWaits = 64;

  // Both tell whether the step ended meanwhile.
  bool spin(uint32_t step) {
    if (changes_shortly(step_, step)) return true;
    const int short_waits = short_waits_.load(std::memory_order_relaxed);
    const int next = next_short_waits_.load(std::memory_order_relaxed);
    if (short_waits == 0) {
      const auto deadline = std::chrono::steady_clock::now() + kSpin;
      while (std::chrono::steady_clock::now() < deadline) {
        if (!changes_shortly(step_, step)) continue;
        next_short_waits_.store(std::max(kFewShortWaits, next / 2), std::memory_order_relaxed);
        return true;
      }
      next_short_waits_.store(std::min(kShortWaits, 2 * next), std::memory_order_relaxed);
    }
    short_waits_.store(short_waits == 0 ? next : short_waits - 1, std::memory_order_relaxed);
    return false;
  }

  const int num_threads_;
  alignas(64) std::atomic<int> arrived_{0};
  std::atomic<int> short_waits_{0};  // how many more
  std::atomic<int> next_short_waits_{kFewShortWaits};  // after the next spin in vain
  alignas(64) std::atomic<uint32_t> step_{0};
};

}  // namespace outrider
