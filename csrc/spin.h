// Waiting for another thread without sleeping.
#pragma once

#include <atomic>
#include <cstdint>

namespace outrider {

// Whether the value comes to differ from `old` within a microsecond or so.
inline bool changes_shortly(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < 64; ++i) {
    if (value.load(std::memory_order_acquire) != old) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  return false;
}

}  // namespace outrider
