// Random weight files and activations, and the exact products to compare with.
#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "matmul/activations.h"
#include "matmul/matmul.h"

namespace outrider::test {

// The tile kernels on emulated tiles, for processors without them (amx_emulated.cpp).
extern const KernelSet kEmulatedAmxKernels;

struct NamedKernels {
  std::string_view name;
  const KernelSet* kernels;
};
// Of every instruction set this machine runs, the portable one first, and the emulated tiles.
std::vector<NamedKernels> all_kernels();

struct Weights {
  WeightType type;
  int64_t num_out, num_in;
  std::vector<uint8_t> file;
  std::vector<double> values;      // [num_out, num_in], without any rounding
  std::vector<double> magnitudes;  // |scale * (code - offset)| + |min|, what rounding errors are relative to
};

// Bytes are random, all codes and scales occur; only the exponents of the floats are kept moderate.
Weights random_weights(WeightType type, int64_t num_out, int64_t num_in, std::mt19937& rng);
Weights from_file(WeightType type, int64_t num_out, int64_t num_in, std::vector<uint8_t> file);
Weights from_floats(int64_t num_out, int64_t num_in, const std::vector<float>& values);
PackedMatrix pack_weights(const Weights& w, PackAs as = PackAs::kFile);

// [rows, num_in]: normally distributed with a different size in every group, some groups zero.
std::vector<float> random_rows(int64_t rows, int64_t num_in, std::mt19937& rng);

// y = x W^T through Activations and matmul, [rows, num_out]. Whatever no thread writes stays NaN.
std::vector<float> multiply(const NamedKernels& set, const PackedMatrix& w, const std::vector<float>& x, int64_t rows,
                            int threads = 1);
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace outrider::test
