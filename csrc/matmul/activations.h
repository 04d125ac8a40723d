// The memory behind Activations.
#pragma once

#include "matmul/kernels.h"
#include "matmul/matmul.h"

namespace outrider {

struct Activations::Buffers {
  int64_t max_rows;
  int64_t max_stride;
  int64_t num_rows = 0;
  int64_t num_in = 0;
  int64_t stride = 0;
  AlignedBuffer floats;
  AlignedBuffer codes;
  AlignedBuffer scales;
  AlignedBuffer scaled_sums;
  AlignedBuffer neg_sums;
  AlignedBuffer neg_half_sums;

  // Rows first..first + rows, a block of the kernel set in use.
  RowBlock block(int64_t first, int rows) const {
    const int64_t group = first * (stride / kGroup);
    return {rows,
            floats.as<float>() + first * stride,
            stride,
            codes.as<int8_t>() + first * stride,
            scales.as<float>() + group,
            scaled_sums.as<float>() + group,
            neg_sums.as<int32_t>() + group,
            neg_half_sums.as<int32_t>() + 2 * group};
  }
};

// The kernels for a pass of num_rows rows: quantize_columns and matmul must agree on them.
const KernelSet& kernel_set(Isa isa, int64_t num_rows);
void quantize_columns_with(const KernelSet& kernels, const Activations& x, int64_t begin, int64_t end);
void matmul_with(const KernelSet& kernels, std::span<const MatmulJob> jobs, const Activations& x, int thread,
                 int num_threads);

}  // namespace outrider
