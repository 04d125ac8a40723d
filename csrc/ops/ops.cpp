#include "ops/ops.h"

namespace outrider {

extern const Ops kPortableOps;
#if defined(__x86_64__)
extern const Ops kAvx2Ops, kAvx512Ops;
#endif

const Ops& ops_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Vnni || isa == Isa::kAmx) return kAvx512Ops;
  if (isa == Isa::kAvx2) return kAvx2Ops;
#endif
  (void)isa;
  return kPortableOps;
}

}  // namespace outrider
