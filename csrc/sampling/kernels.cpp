#include "sampling/kernels.h"

namespace outrider {

extern const SamplingKernels kPortableSampling;
#if defined(__x86_64__)
extern const SamplingKernels kAvx2Sampling, kAvx512Sampling;
#endif

const SamplingKernels& sampling_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Vnni || isa == Isa::kAmx) return kAvx512Sampling;
  if (isa == Isa::kAvx2) return kAvx2Sampling;
#endif
  (void)isa;
  return kPortableSampling;
}

}  // namespace outrider
