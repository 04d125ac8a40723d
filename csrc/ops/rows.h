// The functions of ops.h that work on a row; included once per instruction set.
#pragma once

#include "ops/ops.h"
#include "ops/vec.h"

namespace outrider {
namespace {

// The first lanes from memory, zeros in the others: what lies beyond a head belongs to another thread, or to nobody.
inline Vec load_some(const float* p, int64_t count) {
  if (count >= kLanes) return load(p);
  float lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(float));
  return load(lanes);
}

float rms_scale(const float* x, int64_t n, float eps) {
  Vec squares = splat(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec values = load_some(x + i, n - i);
    squares = fma(values, values, squares);
  }
  return 1.0f / __builtin_sqrtf(sum_of_lanes(squares) / static_cast<float>(n) + eps);
}

void scale_row(const float* x, float scale, const float* weight, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

void add_rows(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void silu_mul(const float* gate, const float* up, int64_t n, float* y) {
  const Vec one = splat(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec g = load(gate + i);
    const Vec silu = div(g, add(one, exp(sub(splat(0.0f), g))));
    store(y + i, mul(silu, load(up + i)));
  }
}

void gelu_mul(const float* gate, const float* up, int64_t n, float* y) {
  const Vec one = splat(1.0f), linear = splat(-1.5957691f), cubic = splat(-0.071354816f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec g = load(gate + i);
    const Vec exponent = mul(g, fma(mul(g, g), cubic, linear));
    store(y + i, mul(div(g, add(one, exp(exponent))), load(up + i)));
  }
}

void rotate(float* x, const float* cos, const float* sin, int64_t half, int64_t n, float scale) {
  float* __restrict first = x;
  float* __restrict second = x + half;
  for (int64_t i = 0; i < half; ++i) {
    const float a = first[i], b = second[i];
    first[i] = (a * cos[i] - b * sin[i]) * scale;
    second[i] = (b * cos[i] + a * sin[i]) * scale;
  }
  for (int64_t i = 2 * half; i < n; ++i) x[i] *= scale;
}

void write_cache(const float* k, const float* v, int64_t head_dim, uint16_t* block, int64_t slot) {
  uint16_t* values = block + head_dim * kBlockPositions + slot * padded(head_dim);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    uint16_t keys[kLanes];
    store_f16(keys, load_some(k + d, head_dim - d));
    for (int64_t i = 0; i < kLanes && d + i < head_dim; ++i) block[(d + i) * kBlockPositions + slot] = keys[i];
    store_f16(values + d, load_some(v + d, head_dim - d));
  }
}

}  // namespace
}  // namespace outrider
