// The tile kernels on tiles made of arrays: the same code as on the processor's, with the same checks on shapes.
#include <cstring>

#include "cases.h"
#include "check.h"
#include "matmul/amx_panel.h"
#include "matmul/kernel_set.h"
#include "matmul/simd_portable.h"

namespace outrider {
namespace {

class EmulatedTiles {
 public:
  void configure(int rows, int k) {
    test::check(rows >= 1 && rows <= 16 && k % 4 == 0 && k <= 64, "no tiles of ", rows, " rows and k = ", k);
    for (int slot = 0; slot < 2; ++slot) {
      tiles_[slot] = {rows, 64, {}};
      tiles_[2 + slot] = {rows, k, {}};
      tiles_[4 + slot] = {k / 4, 64, {}};
    }
  }
  template <int t> void zero() { std::memset(tiles_[t].bytes, 0, sizeof tiles_[t].bytes); }
  template <int t> void load(const void* p, int64_t stride) {
    Tile& tile = tiles_[t];
    for (int r = 0; r < tile.rows; ++r) {
      std::memcpy(tile.bytes[r], static_cast<const char*>(p) + r * stride, static_cast<size_t>(tile.row_bytes));
    }
  }
  template <int t> void store(void* p, int64_t stride) {
    const Tile& tile = tiles_[t];
    for (int r = 0; r < tile.rows; ++r) {
      std::memcpy(static_cast<char*>(p) + r * stride, tile.bytes[r], static_cast<size_t>(tile.row_bytes));
    }
  }
  template <int c, int a, int b> void dot() {
    Tile& sums = tiles_[c];
    for (int r = 0; r < sums.rows; ++r) {
      int32_t row[16];
      std::memcpy(row, sums.bytes[r], sizeof row);
      for (int k = 0; k < tiles_[a].row_bytes; ++k) {
        for (int n = 0; n < 16; ++n) row[n] += tiles_[a].bytes[r][k] * tiles_[b].bytes[k / 4][4 * n + k % 4];
      }
      std::memcpy(sums.bytes[r], row, sizeof row);
    }
  }

 private:
  struct Tile {
    int rows;
    int row_bytes;
    int8_t bytes[16][64];
  };
  Tile tiles_[8] = {};
};

template <WeightType T>
struct Kernels {
  static void run(const PanelCall& call, const RowBlock& x) { amx_panels<Portable, EmulatedTiles, T>(call, x); }
};

}  // namespace

const KernelSet test::kEmulatedAmxKernels = make_kernel_set<Kernels>(16, false);

}  // namespace outrider
