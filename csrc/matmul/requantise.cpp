#include "matmul/requantise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "formats/half.h"
#include "matmul/layout.h"

// One function, compiled for several instruction sets, of which the loader takes the best. The bits are the same.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define OUTRIDER_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define OUTRIDER_CLONES
#endif

namespace outrider {
namespace {

// Adding 1.5 * 2^23 rounds to the nearest even integer and leaves it in the low bits.
constexpr float kMagic = 12582912.0f;

// The largest magnitude; infinity and NaN come out on top, since their bits do.
float max_magnitude(const float* x, int n) {
  uint32_t top = 0;
  for (int i = 0; i < n; ++i) top = std::max(top, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  return std::bit_cast<float>(top);
}

[[noreturn]] void reject(float magnitude, const char* codes, const char* limit) {
  if (!std::isfinite(magnitude))
    throw std::invalid_argument("a weight is not finite; it cannot be held in " + std::string(codes) + " bits");
  throw std::invalid_argument("a weight of magnitude " + std::to_string(magnitude) + " is beyond what " + codes +
                              "-bit codes with a float16 scale can hold (" + limit + ")");
}

constexpr int kTried = 16;  // scales that are tried side by side

struct Sums {
  float product[kTried], code2[kTried];  // of code * x and code^2
};

OUTRIDER_CLONES void sum_up(const float (&x)[kGroup], const float (&per_step)[kTried], Sums& sums) {
  float product[kTried] = {}, code2[kTried] = {};
  for (int i = 0; i < kGroup; ++i) {
    for (int t = 0; t < kTried; ++t) {
      const float code = std::min(std::max(x[i] * per_step[t], -8.0f), 7.0f) + kMagic - kMagic;
      product[t] += code * x[i];
      code2[t] += code * code;
    }
  }
  std::memcpy(sums.product, product, sizeof product);
  std::memcpy(sums.code2, code2, sizeof code2);
}

// Tries scales around the one that gives the value of the largest magnitude the code -8. Each gives codes, and the codes
// a scale by least squares; the best of these is taken. The search is that of llama.cpp's make_qx_quants, without
// weights.
float fit(const float (&x)[kGroup], float extreme) {
  float per_step[kTried];
  for (int t = 0; t < kTried; ++t) per_step[t] = -(7.0f + 0.125f * static_cast<float>(t)) / extreme;
  Sums sums;
  sum_up(x, per_step, sums);
  float best = extreme / -8, best_gain = 0;  // the sum of squared values less that of squared errors
  for (int t = 0; t < kTried; ++t) {
    const float scale = sums.product[t] / sums.code2[t];
    const float gain = scale * sums.product[t];
    if (gain > best_gain) best_gain = gain, best = scale;
  }
  return best;
}

}  // namespace

void requantise_int8(const float* x, int n, QuantBlock& out) {
  const float magnitude = max_magnitude(x, n);
  out.d = float_to_f16(magnitude / 127);
  // Among the smallest float16 numbers rounding down can lose half the range: take the next one up.
  if (std::isfinite(magnitude) && f16_to_float(out.d) * 127.5f < magnitude) ++out.d;
  const float scale = f16_to_float(out.d);
  if (!std::isfinite(magnitude) || !std::isfinite(scale)) reject(magnitude, "8", "8.3e6");
  std::memset(out.codes, 128, kGroup);
  if (scale == 0) return;
  for (int i = 0; i < n; ++i) {
    const float ratio = std::min(std::max(x[i] / scale, -127.0f), 127.0f);
    out.codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(ratio + kMagic) + 128);
  }
}

void requantise_int4(const float* x, int n, QuantBlock& out) {
  const float magnitude = max_magnitude(x, n);
  if (!(magnitude <= 65504)) reject(magnitude, "4", "65504");
  std::memset(out.codes, 8, kGroup);
  out.d = 0;
  if (magnitude == 0) return;
  float values[kGroup] = {};
  std::copy(x, x + n, values);
  const float* const extreme = std::find_if(values, values + n, [&](float v) { return std::abs(v) == magnitude; });
  out.d = float_to_f16(fit(values, *extreme));
  const float scale = f16_to_float(out.d);
  if (scale == 0) return;
  for (int i = 0; i < n; ++i) {
    const float ratio = std::min(std::max(x[i] / scale, -8.0f), 7.0f);
    out.codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(ratio + kMagic) + 8);
  }
}

}  // namespace outrider
