#include "matmul/matmul.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "matmul/activations.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace outrider {
namespace {

// Panels that all blocks of rows go over before the next ones: few enough to stay in the second cache, enough to make
// the rows' own traffic small.
constexpr int64_t kRunBytes = 256 << 10;

// Below this many rows vectors are as quick as tiles, whose sums take a way through memory.
[[maybe_unused]] constexpr int64_t kMinTileRows = 4;

// Two extensions are no sets of their own, since they only are a faster way to the same results: AVX-VNNI under AVX2,
// and on ARM processors NEON's dot product under the portable code.
#if defined(__x86_64__)
const KernelSet& avx2_kernels() {
  static const bool has_vnni = [] {
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
  }();
  return has_vnni ? kAvxVnniKernels : kAvx2Kernels;
}
#endif

const KernelSet& portable_kernels() {
#if defined(__aarch64__)
  static const bool has_dot_product = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  if (has_dot_product) return kNeonKernels;
#endif
  return kPortableKernels;
}

int64_t num_panels(const PackedMatrix& w) { return kLayouts[w.format].panels(w.num_out); }
int64_t panel_bytes(const PackedMatrix& w) { return kLayouts[w.format].panel_bytes(w.num_in); }

// Panels first..last of one job, for all rows.
void run_panels(const KernelSet& kernels, const MatmulJob& job, const Activations& x, int64_t first, int64_t last) {
  const PackedMatrix& w = *job.weights;
  const int64_t bytes = panel_bytes(w);
  const int columns = kLayouts[w.format].columns();
  const bool one_block = x.num_rows() <= kernels.rows_per_block;
  const int64_t run = one_block ? last - first : std::max<int64_t>(kRunBytes / bytes, 1);
  for (int64_t panel = first; panel < last; panel += run) {
    const int64_t column = panel * columns;
    const int64_t end = std::min({(panel + run) * columns, last * columns, w.num_out});
    for (int64_t row = 0; row < x.num_rows(); row += kernels.rows_per_block) {
      const auto rows = static_cast<int>(std::min<int64_t>(kernels.rows_per_block, x.num_rows() - row));
      const PanelCall call{w.data.as<uint8_t>() + panel * bytes, bytes, w.num_in, job.y + row * job.y_stride + column,
                           job.y_stride, end - column};
      kernels.panels[w.format](call, x.buffers().block(row, rows));
    }
  }
}

}  // namespace

const KernelSet& kernel_set(Isa isa, [[maybe_unused]] int64_t num_rows) {
  switch (isa) {
    case Isa::kPortable: return portable_kernels();
#if defined(__x86_64__)
    case Isa::kAvx2: return avx2_kernels();
    case Isa::kAvx512Vnni: return kAvx512Kernels;
    case Isa::kAmx: return num_rows < kMinTileRows ? kAvx512Kernels : kAmxKernels;
#endif
    default: throw std::invalid_argument("no kernels for instruction set " + std::string(isa_name(isa)));
  }
}

void matmul(std::span<const MatmulJob> jobs, const Activations& x, Isa isa, int thread, int num_threads) {
  matmul_with(kernel_set(isa, x.num_rows()), jobs, x, thread, num_threads);
}

// The panels of all jobs in one line, cut into stretches of equal bytes; a panel belongs to the stretch it starts in.
void matmul_with(const KernelSet& kernels, std::span<const MatmulJob> jobs, const Activations& x, int thread,
                 int num_threads) {
  int64_t total = 0;
  for (const MatmulJob& job : jobs) {
    if (job.weights->num_in != x.num_in()) {
      throw std::invalid_argument("weights take " + std::to_string(job.weights->num_in) +
                                  " inputs, the activations have " + std::to_string(x.num_in()));
    }
    total += num_panels(*job.weights) * panel_bytes(*job.weights);
  }
  const Span share = split(total, thread, num_threads);
  int64_t start = 0;
  for (const MatmulJob& job : jobs) {
    const int64_t bytes = panel_bytes(*job.weights);
    const int64_t panels = num_panels(*job.weights);
    const auto panel_at = [&](int64_t offset) {
      return std::clamp<int64_t>((offset - start + bytes - 1) / bytes, 0, panels);
    };
    run_panels(kernels, job, x, panel_at(share.begin), panel_at(share.end));
    start += panels * bytes;
  }
}

}  // namespace outrider
