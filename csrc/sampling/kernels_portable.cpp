#include "sampling/rows.h"

namespace outrider {

extern const SamplingKernels kPortableSampling;
const SamplingKernels kPortableSampling = {group_maxima, mask, weights, sum, moment, difference};

}  // namespace outrider
