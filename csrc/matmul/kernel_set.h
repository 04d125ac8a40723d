// The table of one instruction set's kernels.
#pragma once

#include "matmul/kernels.h"
#include "matmul/panel.h"
#include "matmul/quantize.h"

namespace outrider {
namespace {

template <class V>
constexpr KernelSet make_kernel_set() {
  return {V::kMaxRows,
          true,
          {panel<V, WeightType::kF32>, panel<V, WeightType::kF16>, panel<V, WeightType::kBF16>,
           panel<V, WeightType::kQ4_0>, panel<V, WeightType::kQ4_1>, panel<V, WeightType::kQ5_0>,
           panel<V, WeightType::kQ5_1>, panel<V, WeightType::kQ8_0>, panel<V, WeightType::kQ4_K>,
           panel<V, WeightType::kQ5_K>, panel<V, WeightType::kQ6_K>},
          quantize_row};
}

}  // namespace
}  // namespace outrider
