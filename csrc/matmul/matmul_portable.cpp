#include "matmul/kernel_set.h"
#include "matmul/simd_portable.h"

namespace outrider {
namespace {

template <WeightType T>
struct Kernels {
  static void run(const PanelCall& call, const RowBlock& x) { panels<Portable, T>(call, x); }
};

}  // namespace

const KernelSet kPortableKernels = make_kernel_set<Kernels>(Portable::kMaxRows, true);

}  // namespace outrider
