#include "cases.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "formats/blocks.h"
#include "formats/half.h"

namespace outrider::test {
namespace {

// Sign and mantissa stay random, the exponent comes near that of small weights.
void tame_half(uint8_t* p) { p[1] = static_cast<uint8_t>((p[1] & 0x87) | 0x20); }

void tame(const WeightTypeInfo& info, uint8_t* block) {
  switch (info.type) {
    case WeightType::kF32: block[3] = static_cast<uint8_t>((block[3] & 0x80) | 0x3d); break;
    case WeightType::kBF16: block[1] = static_cast<uint8_t>((block[1] & 0x80) | 0x3d); break;
    case WeightType::kF16:
    case WeightType::kQ4_0:
    case WeightType::kQ5_0:
    case WeightType::kQ8_0: tame_half(block); break;
    case WeightType::kQ6_K: tame_half(block + 208); break;
    default: tame_half(block), tame_half(block + 2); break;
  }
}

void exact_block(const WeightTypeInfo& info, const uint8_t* src, double* values, double* magnitudes) {
  QuantBlock block;
  decode_block(info.type, src, block);
  const int offset = code_offset(info.type);
  const bool has_min = offset == 0;
  const bool k = info.block_elements == 256;
  const int group = info.type == WeightType::kQ6_K ? 16 : 32;
  for (int i = 0; i < info.block_elements; ++i) {
    double scale = f16_to_float(block.d);
    double min = has_min ? f16_to_float(block.min) : 0;
    const int g = i / group;
    if (info.type == WeightType::kQ6_K) scale *= static_cast<int8_t>(block.scales[g]);
    else if (k) scale *= block.scales[g], min *= block.mins[g];
    else min = -min;
    values[i] = scale * (block.codes[i] - offset) - min;
    magnitudes[i] = std::fabs(scale * (block.codes[i] - offset)) + std::fabs(min);
  }
}

}  // namespace

std::vector<NamedKernels> all_kernels() {
  std::vector<NamedKernels> sets{{"portable", &kPortableKernels}};
  for (const Isa isa : available_isas()) {
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) sets.push_back({"avx2 without vnni", &kAvx2Kernels});
#endif
    sets.push_back({isa_name(isa), &kernel_set(isa, 16)});
  }
  sets.push_back({"emulated amx", &kEmulatedAmxKernels});
  return sets;
}

Weights from_file(WeightType type, int64_t num_out, int64_t num_in, std::vector<uint8_t> file) {
  const WeightTypeInfo& info = weight_type_info(type);
  Weights w{type, num_out, num_in, std::move(file), {}, {}};
  w.values.resize(static_cast<size_t>(num_out * num_in));
  w.magnitudes.resize(w.values.size());
  const size_t blocks = w.values.size() / static_cast<size_t>(info.block_elements);
  for (size_t b = 0; b < blocks; ++b) {
    const uint8_t* const src = w.file.data() + b * static_cast<size_t>(info.block_bytes);
    const size_t at = b * static_cast<size_t>(info.block_elements);
    if (info.block_elements > 1) {
      exact_block(info, src, &w.values[at], &w.magnitudes[at]);
    } else {
      float value;
      dequantize_row(type, src, 1, &value);
      w.values[at] = value;
      w.magnitudes[at] = std::fabs(value);
    }
  }
  return w;
}

Weights random_weights(WeightType type, int64_t num_out, int64_t num_in, std::mt19937& rng) {
  const WeightTypeInfo& info = weight_type_info(type);
  std::vector<uint8_t> file(static_cast<size_t>(num_out * row_bytes(type, num_in)));
  for (uint8_t& byte : file) byte = static_cast<uint8_t>(rng());
  for (size_t i = 0; i < file.size(); i += static_cast<size_t>(info.block_bytes)) tame(info, &file[i]);
  return from_file(type, num_out, num_in, std::move(file));
}

Weights from_floats(int64_t num_out, int64_t num_in, const std::vector<float>& values) {
  std::vector<uint8_t> file(values.size() * sizeof(float));
  std::memcpy(file.data(), values.data(), file.size());
  return from_file(WeightType::kF32, num_out, num_in, std::move(file));
}

PackedMatrix pack_weights(const Weights& w, PackAs as) {
  ThreadPool pool(2);
  return pack(w.type, w.file, w.num_out, w.num_in, as, pool);
}

std::vector<float> random_rows(int64_t rows, int64_t num_in, std::mt19937& rng) {
  std::vector<float> x(static_cast<size_t>(rows * num_in));
  std::normal_distribution<float> normal;
  float size = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 32 == 0) size = rng() % 8 == 0 ? 0.0f : std::exp2(static_cast<float>(rng() % 12) - 6);
    x[i] = size * normal(rng);
  }
  return x;
}

std::vector<float> multiply(const NamedKernels& set, const PackedMatrix& w, const std::vector<float>& x, int64_t rows,
                            int threads) {
  Activations activations(rows, w.num_in);
  activations.set_shape(rows, w.num_in);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(activations.floats() + r * activations.stride(), &x[static_cast<size_t>(r * w.num_in)],
                static_cast<size_t>(w.num_in) * sizeof(float));
  }
  quantize_columns_with(*set.kernels, activations, 0, activations.stride());
  std::vector<float> y(static_cast<size_t>(rows * w.num_out), std::numeric_limits<float>::quiet_NaN());
  const MatmulJob job{&w, y.data(), w.num_out};
  for (int t = 0; t < threads; ++t) matmul_with(*set.kernels, {&job, 1}, activations, t, threads);
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace outrider::test
