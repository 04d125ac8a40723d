// The table of one instruction set's kernels.
#pragma once

#include "matmul/kernels.h"
#include "matmul/panel.h"
#include "matmul/quantize.h"

namespace outrider {
namespace {

// Kernels<type>::run for each type in the order of WeightType.
template <template <WeightType> class Kernels>
constexpr KernelSet make_kernel_set(int rows_per_block, bool interleaved) {
  using enum WeightType;
  return {rows_per_block,
          interleaved,
          {Kernels<kF32>::run, Kernels<kF16>::run, Kernels<kBF16>::run, Kernels<kQ4_0>::run, Kernels<kQ4_1>::run,
           Kernels<kQ5_0>::run, Kernels<kQ5_1>::run, Kernels<kQ8_0>::run, Kernels<kQ4_K>::run, Kernels<kQ5_K>::run,
           Kernels<kQ6_K>::run},
          quantize_row};
}

}  // namespace
}  // namespace outrider
