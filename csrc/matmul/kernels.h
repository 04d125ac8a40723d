// What the driver (matmul.cpp, activations.cpp) and the kernels of one instruction set agree on.
//
// The contract of every kernel, which is what makes results independent of the instruction set and the row count: per
// column and row one float accumulator, started at zero, and for each group of 32 in ascending k
//   dot  = sum of (code - offset) * activation code, exact in int32    (Q6_K: of 16, times its int scale, both halves)
//   acc  = fma(float(dot), weight scale * activation scale, acc)
//   acc  = fma(-min, activation scale * sum of activation codes, acc)  (formats with minimums only)
// and for floating weights acc = fma(weight, x, acc) for each k. Products and conversions round to nearest even.
#pragma once

#include <cstdint>

#include "matmul/layout.h"

namespace outrider {

// Up to KernelSet::rows_per_block rows of activations.
struct RowBlock {
  int rows;
  const float* floats;  // [rows, stride]
  int64_t stride;
  const int8_t* codes;            // KernelSet::interleaved ? [stride / 16][rows][16] : [rows][stride]
  const float* scales;            // [stride / 32][rows]
  const float* scaled_sums;       // [stride / 32][rows], scale * sum of the group's codes
  const int32_t* neg_sums;        // [stride / 32][rows], minus the sum of the group's codes
  const int32_t* neg_half_sums;   // [stride / 32][2][rows], the same for its halves
};

// A run of neighbouring panels.
struct PanelCall {
  const uint8_t* weights;
  int64_t panel_bytes;
  int64_t num_in;
  float* y;  // [rows, y_stride], of which `columns` are written
  int64_t y_stride;
  int64_t columns;
};

using PanelKernel = void (*)(const PanelCall&, const RowBlock&);

// Where one row's quantised form goes: element i of an array lies at i times the array's step.
struct QuantizedRow {
  int8_t* codes;  // half group i, 16 codes, at i * code_step
  int64_t code_step;
  float* scales;
  float* scaled_sums;
  int32_t* neg_sums;
  int32_t* neg_half_sums;
  int64_t step;  // of the four arrays above: the rows of the block
};

struct KernelSet {
  int rows_per_block;
  bool interleaved;
  PanelKernel panels[kNumTypes];
  // n: a multiple of 32.
  void (*quantize_row)(const float* x, int64_t n, const QuantizedRow& out);
};

extern const KernelSet kPortableKernels;
extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvxVnniKernels;
extern const KernelSet kAvx512Kernels;
extern const KernelSet kAmxKernels;
extern const KernelSet kNeonKernels;

}  // namespace outrider
