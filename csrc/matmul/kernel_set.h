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
          {panels<V, WeightType::kF32>, panels<V, WeightType::kF16>, panels<V, WeightType::kBF16>,
           panels<V, WeightType::kQ4_0>, panels<V, WeightType::kQ4_1>, panels<V, WeightType::kQ5_0>,
           panels<V, WeightType::kQ5_1>, panels<V, WeightType::kQ8_0>, panels<V, WeightType::kQ4_K>,
           panels<V, WeightType::kQ5_K>, panels<V, WeightType::kQ6_K>},
          quantize_row};
}

}  // namespace
}  // namespace outrider
