#include "matmul/kernel_set.h"
#include "matmul/simd_portable.h"

namespace outrider {

const KernelSet kPortableKernels = make_kernel_set<Portable>();

}  // namespace outrider
