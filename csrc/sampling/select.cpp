#include "sampling/select.h"

#include <algorithm>
#include <array>
#include <bit>

namespace outrider {
namespace {

constexpr size_t kFew = 32;  // entries that are sorted at once

struct Entry {
  uint64_t key;
  uint32_t index;
  bool operator<=(const Entry& other) const {
    return (key < other.key) | ((key == other.key) & (index <= other.index));
  }
};

// Whole numbers in the order of the doubles.
uint64_t ordered(double key) {
  const auto bits = std::bit_cast<uint64_t>(key + 0.0);  // minus zero is zero
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}

// The last of some entries, in order, up to which their weights reach `needed`.
Entry last_of_few(std::vector<Entry>& entries, std::span<const double> weights, double needed) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return !(b <= a); });
  double reached = 0;
  for (const Entry& entry : entries)
    if ((reached += weights[entry.index]) >= needed) return entry;
  return entries.back();
}

// The last entry kept: deals the entries out to 256 ranges of keys, and looks on in the one where the share is reached.
Entry last_kept(std::vector<Entry> entries, std::span<const double> weights, double needed) {
  while (entries.size() > kFew) {
    uint64_t low = ~uint64_t{0}, high = 0;
    for (const Entry& entry : entries) {
      low = std::min(low, entry.key);
      high = std::max(high, entry.key);
    }
    const int width = std::bit_width(low ^ high);
    if (width == 0) break;  // all equal, and in order
    const int shift = std::max(width - 8, 0);
    std::array<double, 256> mass{};
    std::array<bool, 256> is_used{};
    for (const Entry& entry : entries) {
      mass[entry.key >> shift & 255] += weights[entry.index];
      is_used[entry.key >> shift & 255] = true;
    }
    size_t range = 0, last = 255;
    while (!is_used[last]) --last;
    for (; range < last && mass[range] < needed; ++range) needed -= mass[range];
    size_t size = 0;
    for (const Entry& entry : entries) {
      const size_t is_in_range = (entry.key >> shift & 255) == range;
      entries[size] = entry;  // itself, or one that has been looked at
      size += is_in_range;
    }
    entries.resize(size);
  }
  if (entries.size() <= kFew) return last_of_few(entries, weights, needed);
  double reached = 0;
  for (const Entry& entry : entries)
    if ((reached += weights[entry.index]) >= needed) return entry;
  return entries.back();
}

}  // namespace

std::vector<uint8_t> select_lowest(std::span<const double> keys, std::span<const double> weights, double needed) {
  std::vector<uint8_t> is_kept(keys.size());
  if (keys.empty()) return is_kept;
  std::vector<Entry> entries(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) entries[i] = {ordered(keys[i]), static_cast<uint32_t>(i)};
  const Entry last = last_kept(entries, weights, needed);
  for (size_t i = 0; i < keys.size(); ++i) is_kept[i] = entries[i] <= last;
  return is_kept;
}

}  // namespace outrider
