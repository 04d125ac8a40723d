// The panel kernel on matrix tiles: 16 rows by 16 columns of exact integer sums in one instruction.
//
// Tiles (matmul_amx.cpp has the real ones, tests/native emulated ones) has eight registers and
//   configure(rows, k): registers 0, 1 hold [rows][16] int32; 2, 3 [rows][k] int8; 4, 5 [k / 4][16][4] int8
//   zero<t>(), load<t>(p, stride), store<t>(p, stride), dot<c, a, b>(): c += a b, both signed
#pragma once

#include "matmul/panel.h"

namespace outrider {
namespace {

// Weights less their offset fit int8 in every format, so nothing needs correcting afterwards.
template <class V>
struct Signed : V {
  template <int kBits> static constexpr bool kSigned = true;
};

// The buffers between vector and tile registers for one group; two of them alternate, so that one group's tiles
// multiply while the previous group's sums are scaled.
struct alignas(64) TileBuffers {
  uint8_t quads[kQuads * kLine];
  int32_t sums[2][16 * kLanes];
};

template <class V, class Tiles, WeightType T, int R, int kSlot>
OUTRIDER_INLINE void multiply_group(Tiles& tiles, const Group<V, T>& group, const RowBlock& x, int64_t index,
                                    TileBuffers& buffers) {
  constexpr int kParts = Group<V, T>::kHalves ? 2 : 1;
  for (int q = 0; q < kQuads; ++q) V::store_u8(buffers.quads + q * kLine, group.quads[q]);
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    tiles.template zero<kSlot>();
    tiles.template load<2 + kSlot>(x.codes + index * kGroup + part * 16, x.stride);
    tiles.template load<4 + kSlot>(buffers.quads + part * 4 * kLine, kLine);
    tiles.template dot<kSlot, 2 + kSlot, 4 + kSlot>();
    tiles.template store<kSlot>(buffers.sums[part], kLine);
  }
}

template <class V, WeightType T, int R>
OUTRIDER_INLINE void accumulate_group(const Group<V, T>& group, const TileBuffers& buffers, const RowBlock& x,
                                      int64_t index, typename V::F32 (&acc)[R]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    typename V::I32 dot = V::load_i32(buffers.sums[0] + r * kLanes);
    if constexpr (Group<V, T>::kHalves) dot = group.combine(dot, V::load_i32(buffers.sums[1] + r * kLanes));
    acc[r] = group.accumulate(acc[r], dot, x.scales + (index * R + r), x.scaled_sums + (index * R + r));
  }
}

// Every layout has an even number of groups to a block.
template <class V, class Tiles, WeightType T, int R>
void amx_panel(Tiles& tiles, const PanelCall& call, const RowBlock& x) {
  constexpr Layout kLayout = kLayouts[static_cast<int>(T)];
  constexpr int kGroupBytes = kLayout.block_bytes() / kLayout.groups();
  TileBuffers buffers[2];
  typename V::F32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = V::zero_f32();
  const uint8_t* block = call.weights;
  for (int64_t first = 0; first < x.stride / kGroup; first += kLayout.groups(), block += kLayout.block_bytes()) {
    for (int g = 0; g < kLayout.groups(); g += 2) {
      prefetch<2 * kGroupBytes>(block + g * kGroupBytes + kPrefetchBytes);
      const Group<V, T> even(block, g);
      multiply_group<V, Tiles, T, R, 0>(tiles, even, x, first + g, buffers[0]);
      const Group<V, T> odd(block, g + 1);
      multiply_group<V, Tiles, T, R, 1>(tiles, odd, x, first + g + 1, buffers[1]);
      accumulate_group<V, T, R>(even, buffers[0], x, first + g, acc);
      accumulate_group<V, T, R>(odd, buffers[1], x, first + g + 1, acc);
    }
  }
  for (int r = 0; r < R; ++r) store_columns<V>(call.y + r * call.y_stride, call.columns, acc[r]);
}

template <class V, class Tiles, WeightType T>
void amx_panels(const PanelCall& call, const RowBlock& x) {
  if constexpr (!kLayouts[static_cast<int>(T)].quantised()) {
    panels<V, T>(call, x);
  } else {
    Tiles tiles;
    tiles.configure(x.rows, Group<Signed<V>, T>::kHalves ? 16 : kGroup);
    with_row_count<16>(x.rows, [&]<int R>() {
      for_panels<T>(call, [&](const PanelCall& panel) { amx_panel<Signed<V>, Tiles, T, R>(tiles, panel, x); });
    });
  }
}

}  // namespace
}  // namespace outrider
