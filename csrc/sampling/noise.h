// The noise of coupled decoding: a function of a key, which stands for a position, and a token id.
//
// Each id's noise is exponential with mean 1, and independent of the others'. Ids stand in groups of 64. Of a group the
// least noise is drawn first, exponential with mean 1/64, then which id has it, each with the same chance; what the
// others have beyond the least is exponential again, since the exponential law has no memory. So a race can pass over a
// group by its least noise. src/outrider/verification/coupled.py has the same function, to the last bit.
#pragma once

#include <bit>
#include <cstdint>

namespace outrider {

constexpr int64_t kNoiseGroup = 64;

// Output `counter` of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with the key for its seed.
inline uint64_t random_bits(uint64_t key, uint64_t counter) {
  uint64_t bits = (counter + 1) * 0x9E3779B97F4A7C15u + key;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
  return bits ^ bits >> 31;
}

// In (0, 1): 2^52 steps, never an end.
inline double open_uniform(uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

// -ln x for x in (0, 1), to some units in the last place: x = m 2^e with m in [1/sqrt 2, sqrt 2), s = (m-1) / (m+1) and
// ln m = 2 artanh s, by its series. One IEEE operation at a time: libraries' logarithms differ, and noise must not.
inline double minus_log(double x) {
  auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int64_t>(bits >> 52) - 1022;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3fe0000000000000u);  // in [1/2, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    exponent -= 1;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 1.0 / 23;
  for (int odd = 21; odd >= 1; odd -= 2) series = series * square + 1.0 / odd;
  return -(static_cast<double>(exponent) * 0.6931471805599453 + 2 * s * series);
}

struct GroupNoise {
  uint64_t bits;
  // A bound on the least noise from below that takes no logarithm: -ln u > 1 - u.
  double bound() const { return (1 - open_uniform(bits)) / kNoiseGroup; }
  double least() const { return minus_log(open_uniform(bits)) / kNoiseGroup; }
  int64_t place() const { return static_cast<int64_t>(bits % kNoiseGroup); }
};

inline GroupNoise group_noise(uint64_t key, int64_t group) {
  return {random_bits(key, static_cast<uint64_t>(group * (kNoiseGroup + 1)))};
}

// What an id that has not its group's least noise has beyond it.
inline double noise_beyond(uint64_t key, int64_t id) {
  const int64_t counter = id / kNoiseGroup * (kNoiseGroup + 1) + 1 + id % kNoiseGroup;
  return minus_log(open_uniform(random_bits(key, static_cast<uint64_t>(counter))));
}

}  // namespace outrider
