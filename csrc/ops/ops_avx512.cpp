#include "ops/attention.h"
#include "ops/rows.h"

namespace outrider {

extern const Ops kAvx512Ops;
const Ops kAvx512Ops = {rms_scale, scale_row, add_rows, silu_mul, gelu_mul, rotate, write_cache, attend};

}  // namespace outrider
