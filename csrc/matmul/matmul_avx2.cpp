#include "matmul/kernel_set.h"
#include "matmul/simd_avx2.h"

namespace outrider {
namespace {

template <WeightType T>
struct Kernels {
  static void run(const PanelCall& call, const RowBlock& x) { panels<Avx2, T>(call, x); }
};

}  // namespace

const KernelSet kAvx2Kernels = make_kernel_set<Kernels>(Avx2::kMaxRows, true);

}  // namespace outrider
