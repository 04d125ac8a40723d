#include "ops/attention.h"
#include "ops/rows.h"

namespace outrider {

extern const Ops kPortableOps;
const Ops kPortableOps = {rms_scale, scale_row,     add_rows,    silu_mul,  gelu_mul,
                       rotate,    quantise_head, write_cache, copy_slot, attend};

}  // namespace outrider
