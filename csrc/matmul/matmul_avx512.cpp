#include "matmul/kernel_set.h"
#include "matmul/quantize_avx512.h"
#include "matmul/simd_avx512.h"

namespace outrider {
namespace {

template <WeightType T>
struct Kernels {
  static void run(const PanelCall& call, const RowBlock& x) { panels<Avx512, T>(call, x); }
};

}  // namespace

const KernelSet kAvx512Kernels = quantising_by_avx512(make_kernel_set<Kernels>(Avx512::kMaxRows, true));

}  // namespace outrider
