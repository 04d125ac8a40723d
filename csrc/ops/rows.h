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

float quantise_head(const float* x, int64_t n, int16_t* codes) {
  Vec squares = splat(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec some = load_some(x + i, n - i);
    squares = fma(some, some, squares);
  }
  constexpr float kLeastNorm = 1e-15f;  // the squares of what is shorter vanish: it is nothing
  const float norm = __builtin_sqrtf(sum_of_lanes(squares));
  const bool in_range = norm >= kLeastNorm && norm < kInfinity;
  const Vec inverse = splat(kCodeNorm / norm);
  for (int64_t i = 0; i < n; i += kLanes) {
    if (in_range) store_rounded(codes + i, mul(load_some(x + i, n - i), inverse));
    else std::memset(codes + i, 0, kLanes * sizeof *codes);
  }
  return in_range ? norm / kCodeNorm : norm < kLeastNorm ? 0.0f : __builtin_nanf("");
}

inline const float* key_scales(const int16_t* block) { return reinterpret_cast<const float*>(block); }
inline const float* value_scales(const int16_t* block) { return key_scales(block) + kBlockPositions; }
inline const int16_t* key_codes(const int16_t* block) { return block + kHeaderElements; }
inline const int16_t* value_codes(const int16_t* block, int64_t head_dim) {
  return key_codes(block) + kBlockPositions * head_dim;
}

// Where in a block a position's codes begin. Pairs of a key follow at distances of 128, codes of a value of 2.
inline int64_t key_offset(int64_t slot) { return kHeaderElements + 2 * slot; }
inline int64_t value_offset(int64_t head_dim, int64_t slot) {
  return kHeaderElements + kBlockPositions * head_dim + slot / 2 * 2 * padded(head_dim) + slot % 2;
}

void write_cache(const float* k, const float* v, int64_t head_dim, int16_t* block, int64_t slot) {
  int16_t codes[kMaxHeadDim];
  float* scales = reinterpret_cast<float*>(block);
  scales[slot] = quantise_head(k, head_dim, codes);
  int16_t* key = block + key_offset(slot);
  for (int64_t d = 0; d < head_dim; d += 2) std::memcpy(key + d * kBlockPositions, codes + d, 2 * sizeof *codes);
  scales[kBlockPositions + slot] = quantise_head(v, head_dim, codes);
  int16_t* value = block + value_offset(head_dim, slot);
  for (int64_t d = 0; d < padded(head_dim); ++d) value[2 * d] = codes[d];
}

void copy_slot(const int16_t* from, int64_t from_slot, int64_t head_dim, int16_t* to, int64_t to_slot) {
  for (const int64_t array : {int64_t{0}, int64_t{kBlockPositions}})
    std::memcpy(to + 2 * (array + to_slot), from + 2 * (array + from_slot), sizeof(float));
  const int16_t* from_key = from + key_offset(from_slot);
  int16_t* to_key = to + key_offset(to_slot);
  for (int64_t d = 0; d < head_dim; d += 2)
    std::memcpy(to_key + d * kBlockPositions, from_key + d * kBlockPositions, 2 * sizeof *to);
  const int16_t* from_value = from + value_offset(head_dim, from_slot);
  int16_t* to_value = to + value_offset(head_dim, to_slot);
  for (int64_t d = 0; d < padded(head_dim); ++d) to_value[2 * d] = from_value[2 * d];
}

}  // namespace
}  // namespace outrider
