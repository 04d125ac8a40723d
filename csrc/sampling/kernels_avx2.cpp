#include "sampling/rows.h"

namespace outrider {

extern const SamplingKernels kAvx2Sampling;
const SamplingKernels kAvx2Sampling = {group_maxima, mask, weights, sum, moment, difference};

}  // namespace outrider
