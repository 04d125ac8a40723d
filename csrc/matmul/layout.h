// How weights lie in memory: panels of output columns, 16 or, for floating formats, 32. A panel is one run of blocks in
// ascending k.
//
// A block of a quantised format is a header (the scales of all its groups) and then, group of 32 by group, the codes.
// Codes come in quads, four consecutive k of 16 columns = 64 byte-sized lanes, which is what one 4-way int8 dot
// instruction takes; lane 4c + j is column c, k = 4 quad + j. A group has 8 quads:
//   4-bit plane: line i of 64 bytes holds quads 2i (low nibbles) and 2i + 1 (high nibbles)
//   1-bit plane: one line, bit q of a byte belongs to quad q            (the fifth bit of Q5_*)
//   2-bit plane: line i, bits 2q..2q+1 of a byte belong to quad 4i + q  (the upper bits of Q6_K)
//   8-bit: one line per quad
// Headers, everything per column [16]:
//   Q4_0 Q5_0 Q8_0   scale f16 [2][16]
//   Q4_1 Q5_1        the same, then min f16 [2][16]
//   Q4_K Q5_K        d f16 [16], dmin f16 [16], scales u8 [8][16], mins u8 [8][16]
//   Q6_K             d f32 [16], scales s8 [16][16]
// Floating formats have no header: k by k, the 32 columns.
// Missing columns and inputs are zero, in codes and scales alike.
#pragma once

#include <cstdint>

#include "formats/weight_types.h"

namespace outrider {

constexpr int kLanes = 16;  // columns of a panel of quantised weights
constexpr int kFloatColumns = 2 * kLanes;
constexpr int kGroup = 32;
constexpr int kQuads = kGroup / 4;
constexpr int kLine = 64;

struct Layout {
  int block_k;       // inputs per block
  int low_bits;      // 4 or 8; 0 for the floating formats
  int high_bits;     // 0, 1 or 2
  int offset_bits;   // codes are relative to 1 << offset_bits; 0 when the format has minimums instead
  int header_bytes;
  int element_bytes; // floating formats only

  constexpr bool quantised() const { return low_bits != 0; }
  constexpr int bits() const { return low_bits + high_bits; }
  constexpr bool has_min() const { return offset_bits == 0; }
  constexpr int columns() const { return quantised() ? kLanes : kFloatColumns; }
  constexpr int groups() const { return block_k / kGroup; }
  constexpr int low_bytes() const { return kLanes * kGroup * low_bits / 8; }
  constexpr int group_bytes() const { return kLanes * kGroup * bits() / 8; }
  constexpr int block_bytes() const {
    return quantised() ? header_bytes + groups() * group_bytes() : columns() * element_bytes;
  }
  constexpr int64_t blocks(int64_t num_in) const { return (num_in + block_k - 1) / block_k; }
  constexpr int64_t panels(int64_t num_out) const { return (num_out + columns() - 1) / columns(); }
  constexpr int64_t panel_bytes(int64_t num_in) const { return blocks(num_in) * block_bytes(); }
};

// In the order of WeightType: a matrix is held in the layout of its type, or requantised, in that of Q8_0, Q4_0 or BF16.
constexpr Layout kLayouts[] = {
    {1, 0, 0, 0, 0, 4},      // F32
    {1, 0, 0, 0, 0, 2},      // F16
    {1, 0, 0, 0, 0, 2},      // BF16
    {64, 4, 0, 3, 64, 0},    // Q4_0
    {64, 4, 0, 0, 128, 0},   // Q4_1
    {64, 4, 1, 4, 64, 0},    // Q5_0
    {64, 4, 1, 0, 128, 0},   // Q5_1
    {64, 8, 0, 7, 64, 0},    // Q8_0
    {256, 4, 0, 0, 320, 0},  // Q4_K
    {256, 4, 1, 0, 320, 0},  // Q5_K
    {256, 4, 2, 5, 320, 0},  // Q6_K
};
constexpr int kNumTypes = sizeof kLayouts / sizeof kLayouts[0];

}  // namespace outrider
