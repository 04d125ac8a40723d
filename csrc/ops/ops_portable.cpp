#include "ops/attention.h"
#include "ops/rows.h"

namespace outrider {

extern const Ops kPortableOps;
const Ops kPortableOps = {rms_norm, add_rows, silu_mul, rotate, write_cache, attend, argmax};

}  // namespace outrider
