#include "matmul/kernel_set.h"
#include "matmul/simd_avx2.h"

namespace outrider {

const KernelSet kAvx2Kernels = make_kernel_set<Avx2>();

}  // namespace outrider
