// The panel kernels, over a vector type V (simd_*.h) and a row count R.
#pragma once

#include <cstdint>

#include "matmul/kernels.h"

namespace outrider {
namespace {

template <int kBytes>
inline __attribute__((always_inline)) void prefetch_lines(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += kLine) __builtin_prefetch(p + i, 0, 3);
}

// Counts down to the next group to fetch.
struct Prefetcher {
  int64_t distance;
  int period;
  int wait;

  explicit Prefetcher(const Prefetch& p) : distance(p.distance), period(p.period), wait(p.phase) {}

  template <int kBytes>
  inline __attribute__((always_inline)) void step(const uint8_t* p) {
    if (--wait < 0) {
      prefetch_lines<kBytes>(p + distance);
      wait = period - 1;
    }
  }
};

// The 64 codes of a quad, less the offset when the dot product takes signed weights.
template <class V, WeightType T>
inline __attribute__((always_inline)) typename V::U8 load_quad(const uint8_t* codes, int quad) {
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
    return V::template kSigned<4> ? V::subtract(code, kLayout.has_min() ? 0 : 1 << kLayout.offset_bits) : code;
  }
}

// The scales of a block, in registers.
template <class V, WeightType T>
struct Header {
  static constexpr Layout kLayout = kLayouts[static_cast<int>(T)];
  static constexpr bool kIsK = kLayout.block_k == 256;
  using F32 = typename V::F32;

  const uint8_t* p;
  F32 d;
  F32 dmin;

  inline __attribute__((always_inline)) explicit Header(const uint8_t* header) : p(header) {
    if constexpr (T == WeightType::kQ6_K) {
      d = V::load_f32(p);
    } else if constexpr (kIsK) {
      d = V::load_f16(p);
      dmin = V::load_f16(p + 32);
    }
  }

  inline __attribute__((always_inline)) F32 scale(int group) const {
    if constexpr (T == WeightType::kQ6_K) return d;
    else if constexpr (kIsK) return V::mul(d, V::load_u8_as_f32(p + 64 + 16 * group));
    else return V::load_f16(p + 32 * group);
  }

  inline __attribute__((always_inline)) F32 min(int group) const {
    if constexpr (kIsK) return V::mul(dmin, V::load_u8_as_f32(p + 192 + 16 * group));
    else return V::load_f16(p + 64 + 32 * group);
  }

  // Q6_K: the integer scale of half a group.
  inline __attribute__((always_inline)) typename V::I32 half_scale(int half) const {
    return V::load_s8_as_i32(p + 64 + 16 * half);
  }
};

// The exact integer dot product of group with R rows: quads first..first + num of the group.
template <class V, WeightType T, int R>
inline __attribute__((always_inline)) void dot_quads(const uint8_t* group, const int8_t* codes, int first, int num,
                                                     typename V::I32 (&dot)[R]) {
  constexpr int kBits = kLayouts[static_cast<int>(T)].low_bits;
#pragma GCC unroll 8
  for (int q = first; q < first + num; ++q) {
    const typename V::U8 weights = load_quad<V, T>(group, q);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) dot[r] = V::template dot<kBits>(dot[r], weights, codes + 4 * (q * R + r));
  }
}

template <class V, int kBits, int kOffsetBits>
inline __attribute__((always_inline)) typename V::I32 start_dot(const int32_t* neg_sum) {
  if constexpr (V::template kSigned<kBits> || kOffsetBits == 0) return V::zero_i32();
  else return V::broadcast_shifted(neg_sum, kOffsetBits);
}

template <class V, WeightType T, int R>
inline __attribute__((always_inline)) void group_dots(const uint8_t* group, const int8_t* codes, const Header<V, T>& header,
                                                      int g, const int32_t* neg_sums, typename V::I32 (&dot)[R]) {
  constexpr Layout kLayout = kLayouts[static_cast<int>(T)];
  if constexpr (T == WeightType::kQ6_K) {
    typename V::I32 half[R];
    for (int h = 0; h < 2; ++h) {
      const typename V::I32 scale = header.half_scale(2 * g + h);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) half[r] = start_dot<V, 4, 5>(neg_sums + h * R + r);
      dot_quads<V, T, R>(group, codes, h * kQuads / 2, kQuads / 2, half);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const typename V::I32 scaled = V::mul_i32(half[r], scale);
        dot[r] = h == 0 ? scaled : V::add_i32(dot[r], scaled);
      }
    }
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) dot[r] = start_dot<V, kLayout.low_bits, kLayout.offset_bits>(neg_sums + r);
    dot_quads<V, T, R>(group, codes, 0, kQuads, dot);
  }
}

template <class V, int R>
inline __attribute__((always_inline)) void store_rows(const typename V::F32 (&acc)[R], const PanelCall& call) {
  for (int r = 0; r < R; ++r) {
    float* const y = call.y + r * call.y_stride;
    if (call.columns == kColumns) {
      V::store(y, acc[r]);
    } else {
      float all[kColumns];
      V::store(all, acc[r]);
      for (int c = 0; c < call.columns; ++c) y[c] = all[c];
    }
  }
}

template <class V, WeightType T, int R>
void quantised_panel(const PanelCall& call, const RowBlock& x) {
  constexpr Layout kLayout = kLayouts[static_cast<int>(T)];
  constexpr int kSumsPerGroup = T == WeightType::kQ6_K ? 2 : 1;
  typename V::F32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = V::zero_f32();
  Prefetcher prefetcher(call.prefetch);
  const uint8_t* block = call.weights;
  const int8_t* codes = x.codes;
  const float* scales = x.scales;
  const float* scaled_sums = x.scaled_sums;
  const int32_t* neg_sums = T == WeightType::kQ6_K ? x.neg_half_sums : x.neg_sums;
  for (int64_t k = 0; k < call.num_in; k += kLayout.block_k, block += kLayout.block_bytes()) {
    const Header<V, T> header(block);
    for (int g = 0; g < kLayout.groups(); ++g) {
      const uint8_t* const group = block + kLayout.header_bytes + g * kLayout.group_bytes();
      prefetcher.step<kLayout.block_bytes() / kLayout.groups()>(group);
      typename V::I32 dot[R];
      group_dots<V, T, R>(group, codes, header, g, neg_sums, dot);
      const typename V::F32 scale = header.scale(g);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) acc[r] = V::fma(V::to_float(dot[r]), V::mul_broadcast(scale, scales + r), acc[r]);
      if constexpr (kLayout.has_min()) {
        const typename V::F32 min = header.min(g);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r] = V::fnma_broadcast(min, scaled_sums + r, acc[r]);
      }
      codes += kGroup * R;
      scales += R;
      scaled_sums += R;
      neg_sums += kSumsPerGroup * R;
    }
  }
  store_rows<V, R>(acc, call);
}

template <class V, WeightType T>
inline __attribute__((always_inline)) typename V::F32 load_floats(const uint8_t* p) {
  if constexpr (T == WeightType::kF32) return V::load_f32(p);
  else if constexpr (T == WeightType::kF16) return V::load_f16(p);
  else return V::load_bf16(p);
}

template <class V, WeightType T, int R>
void float_panel(const PanelCall& call, const RowBlock& x) {
  constexpr int kBytes = kLayouts[static_cast<int>(T)].block_bytes();
  constexpr int kStep = 16;
  typename V::F32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = V::zero_f32();
  Prefetcher prefetcher(call.prefetch);
  for (int64_t start = 0; start < call.num_in; start += kStep) {
    const int64_t end = start + kStep < call.num_in ? start + kStep : call.num_in;
    prefetcher.step<kStep * kBytes>(call.weights + start * kBytes);
    for (int64_t k = start; k < end; ++k) {
      const typename V::F32 weights = load_floats<V, T>(call.weights + k * kBytes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) acc[r] = V::fma_broadcast(weights, x.floats + r * x.stride + k, acc[r]);
    }
  }
  store_rows<V, R>(acc, call);
}

template <class V, WeightType T, int R>
void panel_rows(const PanelCall& call, const RowBlock& x) {
  if constexpr (kLayouts[static_cast<int>(T)].quantised()) quantised_panel<V, T, R>(call, x);
  else float_panel<V, T, R>(call, x);
}

// 1..V::kMaxRows rows.
template <class V, WeightType T, int R = V::kMaxRows>
void panel(const PanelCall& call, const RowBlock& x) {
  if (x.rows == R) return panel_rows<V, T, R>(call, x);
  if constexpr (R > 1) panel<V, T, R - 1>(call, x);
}

}  // namespace
}  // namespace outrider
