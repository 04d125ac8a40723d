// What touches every entry of a vocabulary, once per instruction set and with the same bits in each. Nothing is assumed
// of alignment, and nothing beyond the n entries is read or written.
#pragma once

#include <cstdint>

#include "isa.h"

namespace outrider {

constexpr int64_t kGroup = 64;   // entries whose largest value is kept
constexpr int64_t kBlock = 512;  // entries whose sum is kept

struct SamplingKernels {
  // Writes the largest value of each group of 64 (the last may be shorter) and returns whether every value is below
  // plus infinity; if not, the largest values say nothing of it.
  bool (*group_maxima)(const float* x, int64_t n, float* maxima);
  // out = x, or minus infinity where bit i % 8 of byte i / 8 is 0; without bits a copy. Returns whether every value of x is
  // below plus infinity, and one above minus infinity. out may be x.
  bool (*copy)(const float* x, int64_t n, const uint8_t* bits, float* out);
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

}  // namespace outrider
