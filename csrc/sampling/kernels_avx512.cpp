#include "sampling/rows.h"

namespace outrider {

extern const SamplingKernels kAvx512Sampling;
const SamplingKernels kAvx512Sampling = {group_maxima, mask, weights, sum, moment, difference};

}  // namespace outrider
