#include "matmul/kernel_set.h"
#include "matmul/simd_avx512.h"

namespace outrider {

const KernelSet kAvx512Kernels = make_kernel_set<Avx512>();

}  // namespace outrider
