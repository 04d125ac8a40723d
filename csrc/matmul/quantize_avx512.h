// Quantising one row of activations with AVX-512: the same numbers as quantize.h, a quarter of the time. Prompts of small
// models spent a tenth of their reading on it.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "matmul/kernels.h"

namespace outrider {
namespace {

// codes = round_half_even(x / scale), within +-127, of half a group.
inline __m128i quantize_half(__m512 x, __m512 scale) {
  const __m512 ratio = _mm512_max_ps(_mm512_min_ps(_mm512_div_ps(x, scale), _mm512_set1_ps(127.0f)),
                                     _mm512_set1_ps(-127.0f));
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(ratio));  // the mode of the processor, which nobody changes
}

inline int32_t sum_of_codes(__m128i codes) {
  __m128i sums = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), codes);
  sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1)));
}

void quantize_row_avx512(const float* x, int64_t n, const QuantizedRow& out) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  for (int64_t g = 0; g < n / kGroup; ++g) {
    const __m512 low = _mm512_loadu_ps(x + g * kGroup), high = _mm512_loadu_ps(x + g * kGroup + 16);
    const __m512i both = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude_bits),
                                          _mm512_and_si512(_mm512_castps_si512(high), magnitude_bits));
    const uint32_t top = _mm512_reduce_max_epu32(both);
    float magnitude;
    std::memcpy(&magnitude, &top, sizeof magnitude);
    float scale = magnitude / 127.0f;
    __m128i codes[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
    if (top >= 0x7f800000) {
      scale = __builtin_nanf("");
    } else if (scale > 0) {
      codes[0] = quantize_half(low, _mm512_set1_ps(scale));
      codes[1] = quantize_half(high, _mm512_set1_ps(scale));
    }
    const int32_t sums[2] = {sum_of_codes(codes[0]), sum_of_codes(codes[1])};
    for (int64_t half = 0; half < 2; ++half) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.codes + (2 * g + half) * out.code_step), codes[half]);
      out.neg_half_sums[(2 * g + half) * out.step] = -sums[half];
    }
    out.scales[g * out.step] = scale;
    out.scaled_sums[g * out.step] = scale * static_cast<float>(sums[0] + sums[1]);
    out.neg_sums[g * out.step] = -(sums[0] + sums[1]);
  }
}

// A set of kernels with this one for quantising.
constexpr KernelSet quantising_by_avx512(KernelSet kernels) {
  kernels.quantize_row = quantize_row_avx512;
  return kernels;
}

}  // namespace
}  // namespace outrider
