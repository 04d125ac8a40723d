// Quantising one row of activations: plain loops, compiled for each instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "matmul/kernels.h"

namespace outrider {
namespace {

// The largest magnitude of a group as bits: for non-negative floats the order of the integers is that of the values,
// with infinity and NaN on top, which a floating-point maximum would lose.
uint32_t max_magnitude_bits(const float* x) {
  uint32_t top = 0;
  for (int i = 0; i < kGroup; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    top = bits > top ? bits : top;
  }
  return top;
}

// codes = round_half_even(x / scale), within +-127. Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
void quantize_group(const float* x, float scale, int32_t* codes) {
  constexpr float kMagic = 12582912.0f;
  constexpr int32_t kMagicBits = 0x4b400000;
  for (int i = 0; i < kGroup; ++i) {
    float ratio = x[i] / scale;
    ratio = ratio > 127.0f ? 127.0f : ratio;
    ratio = ratio < -127.0f ? -127.0f : ratio;
    const float rounded = ratio + kMagic;
    int32_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    codes[i] = bits - kMagicBits;
  }
}

void store_group(const int32_t* codes, float scale, int64_t group, const QuantizedRow& out) {
  int8_t bytes[kGroup];
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < kGroup; ++i) bytes[i] = static_cast<int8_t>(codes[i]);
  for (int i = 0; i < kGroup / 2; ++i) {
    sums[0] += codes[i];
    sums[1] += codes[i + kGroup / 2];
  }
  std::memcpy(out.codes + 2 * group * out.code_step, bytes, kGroup / 2);
  std::memcpy(out.codes + (2 * group + 1) * out.code_step, bytes + kGroup / 2, kGroup / 2);
  out.scales[group * out.step] = scale;
  out.scaled_sums[group * out.step] = scale * static_cast<float>(sums[0] + sums[1]);
  out.neg_sums[group * out.step] = -(sums[0] + sums[1]);
  out.neg_half_sums[2 * group * out.step] = -sums[0];
  out.neg_half_sums[(2 * group + 1) * out.step] = -sums[1];
}

// A value that is not finite makes the scale of its group NaN, and so every result of the row.
void quantize_row(const float* x, int64_t n, const QuantizedRow& out) {
  for (int64_t g = 0; g < n / kGroup; ++g) {
    const uint32_t top = max_magnitude_bits(x + g * kGroup);
    float magnitude;
    std::memcpy(&magnitude, &top, sizeof magnitude);
    float scale = magnitude / 127.0f;
    int32_t codes[kGroup] = {};
    if (top >= 0x7f800000) {
      scale = __builtin_nanf("");
    } else if (scale > 0) {  // else all values are zero or vanish beside the smallest float
      quantize_group(x + g * kGroup, scale, codes);
    }
    store_group(codes, scale, g, out);
  }
}

}  // namespace
}  // namespace outrider
