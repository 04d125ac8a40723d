// AVX2 with the 4-way dot product in one instruction: processors of 2021 and later that lack AVX-512.
#include "matmul/kernel_set.h"
#include "matmul/simd_avx2.h"

namespace outrider {
namespace {

struct AvxVnni : Avx2 {
  template <int kBits> static constexpr bool kSigned = false;

  template <int kBits>
  static I32 dot(I32 acc, U8 w, const int8_t* p) {
    const __m256i a = broadcast(p);
    return {_mm256_dpbusd_avx_epi32(acc.low, w.low, a), _mm256_dpbusd_avx_epi32(acc.high, w.high, a)};
  }
};

template <WeightType T>
struct Kernels {
  static void run(const PanelCall& call, const RowBlock& x) { panels<AvxVnni, T>(call, x); }
};

}  // namespace

const KernelSet kAvxVnniKernels = make_kernel_set<Kernels>(AvxVnni::kMaxRows, true);

}  // namespace outrider
