// The panel kernels, over a vector type V (simd_*.h) and a row count R.
#pragma once

#include <cstdint>

#include "matmul/kernels.h"

#define OUTRIDER_INLINE inline __attribute__((always_inline))

namespace outrider {
namespace {

// How far ahead of the reading the weights are fetched. Measured on Zen 5: with 4 KiB arithmetic and memory do not
// quite overlap, 8 to 16 KiB are alike, and more only empties the first cache.
constexpr int64_t kPrefetchBytes = 12 << 10;

template <int kBytes>
OUTRIDER_INLINE void prefetch(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += kLine) __builtin_prefetch(p + i);
}

// The 64 codes of a quad, less the offset when the dot product takes signed weights.
template <class V, WeightType T>
OUTRIDER_INLINE typename V::U8 load_quad(const uint8_t* codes, int quad) {
  constexpr Layout kLayout = kLayouts[static_cast<int>(T)];
  if constexpr (kLayout.low_bits == 8) {
    const typename V::U8 line = V::load_u8(codes + kLine * quad);
    return V::template kSigned<8> ? V::flip_top_bits(line) : line;
  } else {
    const typename V::U8 line = V::load_u8(codes + kLine * (quad / 2));
    typename V::U8 code = V::and_mask(V::shift_right(line, quad % 2 * 4), 0x0f);
    if constexpr (kLayout.high_bits == 1) {
      const typename V::U8 high = V::load_u8(codes + kLayout.low_bytes());
      code = V::or_masked(code, V::shift_right(high, quad - 4), 0x10);
    } else if constexpr (kLayout.high_bits == 2) {
      const typename V::U8 high = V::load_u8(codes + kLayout.low_bytes() + kLine * (quad / 4));
      code = V::or_masked(code, V::shift_right(high, quad % 4 * 2 - 4), 0x30);
    }
    return V::template kSigned<4> && !kLayout.has_min() ? V::subtract(code, 1 << kLayout.offset_bits) : code;
  }
}

// One group of 32 of a panel, unpacked once for all rows.
template <class V, WeightType T>
struct Group {
  static constexpr Layout kLayout = kLayouts[static_cast<int>(T)];
  static constexpr bool kHalves = T == WeightType::kQ6_K;  // an integer scale for each 16
  static constexpr bool kSigned = V::template kSigned<kLayout.low_bits>;

  typename V::U8 quads[kQuads];
  typename V::I32 half_scales[2];
  typename V::F32 scale;
  typename V::F32 min;

  OUTRIDER_INLINE Group(const uint8_t* block, int g) {
    const uint8_t* const codes = block + kLayout.header_bytes + g * kLayout.group_bytes();
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) quads[q] = load_quad<V, T>(codes, q);
    load_scales(block, g);
  }

  OUTRIDER_INLINE void load_scales(const uint8_t* header, int g) {
    if constexpr (kHalves) {
      scale = V::load_f32(header);
      half_scales[0] = V::load_s8_as_i32(header + 64 + 32 * g);
      half_scales[1] = V::load_s8_as_i32(header + 64 + 32 * g + 16);
    } else if constexpr (kLayout.block_k == 256) {
      scale = V::mul(V::load_f16(header), V::load_u8_as_f32(header + 64 + 16 * g));
      min = V::mul(V::load_f16(header + 32), V::load_u8_as_f32(header + 192 + 16 * g));
    } else {
      scale = V::load_f16(header + 32 * g);
      if constexpr (kLayout.has_min()) min = V::load_f16(header + 64 + 32 * g);
    }
  }

  static OUTRIDER_INLINE typename V::I32 start(const int32_t* neg_sum) {
    if constexpr (kSigned || kLayout.has_min()) return V::zero_i32();
    else return V::broadcast_shifted(neg_sum, kLayout.offset_bits);
  }

  // The exact dot product with row r of a block of R. Each half of the group has its own chain of dependent
  // instructions, so that a few rows keep the multipliers busy.
  template <int R>
  OUTRIDER_INLINE typename V::I32 dot(const RowBlock& x, int64_t index, int r) const {
    const int8_t* const codes = x.codes + (index * kGroup * R + r * 16);
    typename V::I32 low, high;
    if constexpr (kHalves) {
      low = start(x.neg_half_sums + (2 * index * R + r));
      high = start(x.neg_half_sums + ((2 * index + 1) * R + r));
    } else {
      low = start(x.neg_sums + (index * R + r));
      high = V::zero_i32();
    }
#pragma GCC unroll 4
    for (int q = 0; q < kQuads / 2; ++q) {
      low = V::template dot<kLayout.low_bits>(low, quads[q], codes + 4 * q);
      high = V::template dot<kLayout.low_bits>(high, quads[q + 4], codes + (16 * R + 4 * q));
    }
    return combine(low, high);
  }

  OUTRIDER_INLINE typename V::I32 combine(typename V::I32 low, typename V::I32 high) const {
    if constexpr (kHalves) return V::add_i32(V::mul_i32(low, half_scales[0]), V::mul_i32(high, half_scales[1]));
    else return V::add_i32(low, high);
  }

  // scales and scaled_sums: this row's and this group's.
  OUTRIDER_INLINE typename V::F32 accumulate(typename V::F32 acc, typename V::I32 dot, const float* scales,
                                             const float* scaled_sums) const {
    acc = V::fma(V::to_float(dot), V::mul_broadcast(scale, scales), acc);
    if constexpr (kLayout.has_min()) acc = V::fnma_broadcast(min, scaled_sums, acc);
    return acc;
  }
};

// Writes a vector to its columns, as far as there are that many.
template <class V>
OUTRIDER_INLINE void store_columns(float* y, int64_t columns, typename V::F32 acc) {
  if (columns >= kLanes) {
    V::store(y, acc);
  } else {
    float all[kLanes];
    V::store(all, acc);
    for (int64_t c = 0; c < columns; ++c) y[c] = all[c];
  }
}

template <class V, WeightType T, int R>
void quantised_panel(const PanelCall& call, const RowBlock& x) {
  constexpr Layout kLayout = kLayouts[static_cast<int>(T)];
  constexpr int kGroupBytes = kLayout.block_bytes() / kLayout.groups();
  typename V::F32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = V::zero_f32();
  const uint8_t* block = call.weights;
  for (int64_t first = 0; first < x.stride / kGroup; first += kLayout.groups(), block += kLayout.block_bytes()) {
    for (int g = 0; g < kLayout.groups(); ++g) {
      prefetch<kGroupBytes>(block + g * kGroupBytes + kPrefetchBytes);
      const Group<V, T> group(block, g);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const int64_t at = (first + g) * R + r;
        acc[r] = group.accumulate(acc[r], group.template dot<R>(x, first + g, r), x.scales + at, x.scaled_sums + at);
      }
    }
  }
  for (int r = 0; r < R; ++r) store_columns<V>(call.y + r * call.y_stride, call.columns, acc[r]);
}

template <class V, WeightType T>
OUTRIDER_INLINE typename V::F32 load_floats(const uint8_t* p) {
  if constexpr (T == WeightType::kF32) return V::load_f32(p);
  else if constexpr (T == WeightType::kF16) return V::load_f16(p);
  else return V::load_bf16(p);
}

template <class V, WeightType T, int R>
void float_panel(const PanelCall& call, const RowBlock& x) {
  constexpr int kBytes = kLayouts[static_cast<int>(T)].block_bytes();
  typename V::F32 left[R], right[R];
  for (int r = 0; r < R; ++r) left[r] = right[r] = V::zero_f32();
  const uint8_t* weights = call.weights;
  for (int64_t k = 0; k < call.num_in; ++k, weights += kBytes) {
    prefetch<kBytes>(weights + kPrefetchBytes);
    const typename V::F32 left_weights = load_floats<V, T>(weights);
    const typename V::F32 right_weights = load_floats<V, T>(weights + kBytes / 2);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const float* const value = x.floats + r * x.stride + k;
      left[r] = V::fma_broadcast(left_weights, value, left[r]);
      right[r] = V::fma_broadcast(right_weights, value, right[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float* const y = call.y + r * call.y_stride;
    store_columns<V>(y, call.columns, left[r]);
    store_columns<V>(y + kLanes, call.columns - kLanes, right[r]);
  }
}

template <WeightType T, class Function>
OUTRIDER_INLINE void for_panels(PanelCall rest, const Function& function) {
  constexpr int kColumns = kLayouts[static_cast<int>(T)].columns();
  for (; rest.columns > 0; rest.columns -= kColumns) {
    function(rest);
    rest.weights += rest.panel_bytes;
    rest.y += kColumns;
  }
}

template <int kMax, class Function>
OUTRIDER_INLINE void with_row_count(int rows, const Function& function) {
  if (rows == kMax) return function.template operator()<kMax>();
  if constexpr (kMax > 1) with_row_count<kMax - 1>(rows, function);
}

template <class V, WeightType T>
void quantised_panels(const PanelCall& call, const RowBlock& x) {
  with_row_count<V::kMaxRows>(x.rows, [&]<int R>() {
    for_panels<T>(call, [&](const PanelCall& panel) { quantised_panel<V, T, R>(panel, x); });
  });
}

template <class V, WeightType T>
void float_panels(const PanelCall& call, const RowBlock& x) {
  for (int first = 0; first < x.rows; first += V::kMaxFloatRows) {
    PanelCall part = call;
    RowBlock rows = x;
    part.y += first * call.y_stride;
    rows.floats += first * x.stride;
    rows.rows = x.rows - first < V::kMaxFloatRows ? x.rows - first : V::kMaxFloatRows;
    with_row_count<V::kMaxFloatRows>(rows.rows, [&]<int R>() {
      for_panels<T>(part, [&](const PanelCall& panel) { float_panel<V, T, R>(panel, rows); });
    });
  }
}

template <class V, WeightType T>
void panels(const PanelCall& call, const RowBlock& x) {
  if constexpr (kLayouts[static_cast<int>(T)].quantised()) quantised_panels<V, T>(call, x);
  else float_panels<V, T>(call, x);
}

}  // namespace
}  // namespace outrider
