#include "aligned.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace outrider {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

uint8_t* map_zeroed(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<uint8_t*>(p);
}

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes, Pages pages) : bytes_(bytes) {
  if (bytes == 0) return;
  if (bytes < kHugePage || pages == Pages::kSmall) {
    data_ = map_zeroed(bytes);
    if (pages == Pages::kSmall) madvise(data_, bytes, MADV_NOHUGEPAGE);  // some systems give huge pages unasked
    return;
  }
  // A huge page must start on its own boundary, so map one more and give back what lies around.
  if (bytes > SIZE_MAX - kHugePage) throw std::bad_alloc();
  uint8_t* const start = map_zeroed(bytes + kHugePage);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  data_ = start + before;
  if (before != 0) munmap(start, before);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t kept = (bytes + page - 1) / page * page;
  if (kept < bytes + kHugePage - before) munmap(data_ + kept, bytes + kHugePage - before - kept);
  madvise(data_, bytes, MADV_HUGEPAGE);  // only a wish: small pages work as well, a little slower
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace outrider
