// What touches every entry of a vocabulary, once per instruction set and with the same bits in each. Nothing is assumed
// of alignment, and nothing beyond the n entries is read or written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "isa.h"

namespace outrider {

constexpr int64_t kGroup = 64;   // entries whose largest value is kept
constexpr int64_t kBlock = 512;  // entries whose sum is kept

struct SamplingKernels {
  // Writes the largest value of each group of 64 (the last may be shorter) and returns whether every value is below
  // plus infinity; if not, the largest values say nothing of it.
  bool (*group_maxima)(const float* x, int64_t n, float* maxima);
  // Makes x[i] minus infinity where bit i % 8 of byte i / 8 is 0.
  void (*mask)(float* x, int64_t n, const uint8_t* bits);
  // out = exp((x - top) * inverse_temperature), for x <= top.
  void (*weights)(const float* x, int64_t n, float top, double inverse_temperature, double* out);
  double (*sum)(const double* x, int64_t n);
  // The sum of weight * max((x - top) * inverse_temperature, -708).
  double (*moment)(const float* x, const double* weights, int64_t n, float top, double inverse_temperature);
  // out = max(scale * (target * target_scale) - drafted * drafted_scale, 0); out may be one of the others.
  void (*difference)(const double* target, double target_scale, double scale, const double* drafted,
                     double drafted_scale, int64_t n, double* out);
};

const SamplingKernels& sampling_kernels(Isa isa);

// Whether every entry of some is minus infinity, by the largest values of all groups: of a masked row, or one of a model
// that cannot say every token, most blocks are, and need no weights worked out.
inline bool is_excluded(const std::vector<float>& maxima, int64_t begin, int64_t count) {
  const auto first = maxima.begin() + begin / kGroup, last = maxima.begin() + (begin + count - 1) / kGroup;
  return std::all_of(first, last + 1, [](float most) { return most == -std::numeric_limits<float>::infinity(); });
}

}  // namespace outrider
