// Memory for weights, caches and activations: 64-byte aligned, in huge or small pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider {

// What to ask for; either may not be had. Huge pages are read faster, but where the first byte is written 2 MB are
// cleared: 0.1 ms, or several where a virtual machine must first get them from its host.
enum class Pages { kHuge, kSmall };

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Zero-filled. Throws std::bad_alloc when the memory is not to be had.
  explicit AlignedBuffer(size_t bytes, Pages pages = Pages::kHuge);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  template <class T> T* as() { return reinterpret_cast<T*>(data_); }
  template <class T> const T* as() const { return reinterpret_cast<const T*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace outrider
