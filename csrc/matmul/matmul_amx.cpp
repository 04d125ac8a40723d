#include "matmul/amx_panel.h"
#include "matmul/kernel_set.h"
#include "matmul/quantize_avx512.h"
#include "matmul/simd_avx512.h"

namespace outrider {
namespace {

// The tile registers of the thread. Configured per run of panels, since the number of rows changes from pass to pass,
// and given back at its end: a thread that sleeps with live tiles has 8 KiB saved and restored with it.
class AmxTiles {
 public:
  AmxTiles() = default;
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
  ~AmxTiles() { asm volatile("tilerelease"); }

  void configure(int rows, int k) {
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int slot = 0; slot < 2; ++slot) {
      set(config, slot, rows, kLine);
      set(config, 2 + slot, rows, k);
      set(config, 4 + slot, k / 4, kLine);
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }

  template <int t> void zero() { asm volatile("tilezero %%tmm%c0" : : "i"(t)); }
  template <int t> void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  template <int t> void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  template <int c, int a, int b> void dot() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }

 private:
  template <class Config>
  static void set(Config& config, int t, int rows, int row_bytes) {
    config.rows[t] = static_cast<uint8_t>(rows);
    config.row_bytes[t] = static_cast<uint16_t>(row_bytes);
  }
};

template <WeightType T>
struct Kernels {
  static void run(const PanelCall& call, const RowBlock& x) { amx_panels<Avx512, AmxTiles, T>(call, x); }
};

}  // namespace

const KernelSet kAmxKernels = quantising_by_avx512(make_kernel_set<Kernels>(16, false));

}  // namespace outrider
