#include "matmul/kernel_set.h"
#include "matmul/simd_neon.h"

namespace outrider {
namespace {

template <WeightType T>
struct Kernels {
  static void run(const PanelCall& call, const RowBlock& x) { panels<Neon, T>(call, x); }
};

}  // namespace

const KernelSet kNeonKernels = make_kernel_set<Kernels>(Neon::kMaxRows, true);

}  // namespace outrider
