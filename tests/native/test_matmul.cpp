// Products: equal bits on every way to compute them, and close to the exact values.
#include <algorithm>
#include <cmath>
#include <string>

#include "cases.h"
#include "check.h"
#include "tests.h"

namespace outrider::test {
namespace {

constexpr WeightType kTypes[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBF16, WeightType::kQ4_0,
                                 WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ8_0,
                                 WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K};

struct Case { WeightType type; PackAs as; };
constexpr Case kRequantised[] = {{WeightType::kF32, PackAs::kInt8},   {WeightType::kBF16, PackAs::kInt8},
                                 {WeightType::kF16, PackAs::kInt8},   {WeightType::kF16, PackAs::kBFloat16},
                                 {WeightType::kQ6_K, PackAs::kBFloat16}, {WeightType::kF32, PackAs::kInt4},
                                 {WeightType::kQ6_K, PackAs::kInt4},  {WeightType::kQ4_1, PackAs::kInt4}};

std::vector<int64_t> odd_inputs(WeightType type) {
  switch (weight_type_info(type).block_elements) {
    case 1: return {1, 77};
    case 32: return {32, 96};
    default: return {256, 768};
  }
}

void check_all_ways_agree(const Weights& w, PackAs as, std::mt19937& rng) {
  const PackedMatrix packed = pack_weights(w, as);
  const std::vector<NamedKernels> sets = all_kernels();
  for (int64_t rows = 1; rows <= 17; ++rows) {
    const std::vector<float> x = random_rows(rows, w.num_in, rng);
    const std::vector<float> expected = multiply(sets[0], packed, x, rows);
    check(std::none_of(expected.begin(), expected.end(), [](float y) { return std::isnan(y); }), "a column is missing");
    const auto here = [&](std::string_view way) {
      return std::string(weight_type_info(w.type).name) + " as " + std::to_string(static_cast<int>(as)) + ", " +
             std::to_string(w.num_out) + " x " + std::to_string(w.num_in) + ", " + std::to_string(rows) +
             " rows differ: " + std::string(way);
    };
    for (const NamedKernels& set : sets) {
      const int threads = static_cast<int>(1 + rows % 4);
      check(same_bits(multiply(set, packed, x, rows, threads), expected), here(set.name));
    }
    for (int64_t r = 0; r < rows; ++r) {  // each row alone, on the best set of this machine
      const std::vector<float> row(x.begin() + r * w.num_in, x.begin() + (r + 1) * w.num_in);
      const std::vector<float> part(expected.begin() + r * w.num_out, expected.begin() + (r + 1) * w.num_out);
      check(same_bits(multiply(sets[sets.size() - 2], packed, row, 1), part), here("one row at a time"));
    }
  }
}

}  // namespace

void test_all_ways_agree() {
  std::mt19937 rng(1);
  for (const WeightType type : kTypes) {
    for (const int64_t num_in : odd_inputs(type)) {
      for (const int64_t num_out : {int64_t{1}, int64_t{37}}) {
        check_all_ways_agree(random_weights(type, num_out, num_in, rng), PackAs::kFile, rng);
      }
    }
  }
  for (const Case& c : kRequantised) {
    check_all_ways_agree(random_weights(c.type, 37, odd_inputs(c.type)[1], rng), c.as, rng);
  }
}

// More rows than one block, so that panels are taken in runs.
void test_many_rows_agree() {
  std::mt19937 rng(2);
  for (const WeightType type : {WeightType::kQ4_K, WeightType::kQ8_0, WeightType::kBF16}) {
    const PackedMatrix packed = pack_weights(random_weights(type, 200, 768, rng));
    const std::vector<float> x = random_rows(70, 768, rng);
    const std::vector<NamedKernels> sets = all_kernels();
    const std::vector<float> expected = multiply(sets[0], packed, x, 70);
    for (const NamedKernels& set : sets) {
      check(same_bits(multiply(set, packed, x, 70, 3), expected), weight_type_info(type).name, " differs: ", set.name);
    }
  }
}

// The largest sums there are: every code at an end of its range, every activation at +-127.
void test_extreme_codes() {
  for (const WeightType type : kTypes) {
    const WeightTypeInfo& info = weight_type_info(type);
    if (info.block_elements == 1) continue;
    for (const int fill : {0x00, 0xff, 0x7f, 0x80}) {
      const int64_t num_in = 256;
      std::vector<uint8_t> file(static_cast<size_t>(16 * row_bytes(type, num_in)), static_cast<uint8_t>(fill));
      for (size_t i = 0; i < file.size(); i += static_cast<size_t>(info.block_bytes)) {
        const size_t d = type == WeightType::kQ6_K ? i + 208 : i;
        file[d] = 0, file[d + 1] = 0x3c;  // 1.0
        if (code_has_min(type)) file[i + 2] = 0, file[i + 3] = 0x3c;
      }
      const Weights w = from_file(type, 16, num_in, std::move(file));
      const PackedMatrix packed = pack_weights(w);
      std::vector<float> x(static_cast<size_t>(2 * num_in), 127.0f);
      for (size_t i = 0; i < x.size() / 2; ++i) x[i] = i % 2 == 0 ? 127.0f : -127.0f;
      double exact = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < num_in; ++k) {
        exact += 127 * w.values[static_cast<size_t>(k)];
        magnitude += 127 * w.magnitudes[static_cast<size_t>(k)];
      }
      for (const NamedKernels& set : all_kernels()) {
        const float y = multiply(set, packed, x, 2)[16];
        check(std::fabs(y - exact) <= 1e-6 * magnitude, info.name, " filled with ", fill, " on ", set.name, ": ", y,
              " instead of ", exact);
      }
    }
  }
}

// |y - exact| is at most what rounding the activations allows, half a step of each group's scale per weight, plus a few
// float roundings of every group's terms.
void test_close_to_exact() {
  std::mt19937 rng(3);
  for (const WeightType type : kTypes) {
    const int64_t num_in = 768, num_out = 40, rows = 5;
    const Weights w = random_weights(type, num_out, num_in, rng);
    const PackedMatrix packed = pack_weights(w);
    const std::vector<float> x = random_rows(rows, num_in, rng);
    const std::vector<float> y = multiply(all_kernels()[0], packed, x, rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < num_out; ++c) {
        double exact = 0, rounding = 0, magnitude = 0;
        for (int64_t k = 0; k < num_in; k += 32) {
          const float* const group = &x[static_cast<size_t>(r * num_in + k)];
          double top = 0;
          for (int i = 0; i < 32; ++i) top = std::max(top, std::fabs(static_cast<double>(group[i])));
          for (int i = 0; i < 32; ++i) {
            const auto at = static_cast<size_t>(c * num_in + k + i);
            exact += w.values[at] * group[i];
            if (packed.quantised) rounding += std::fabs(w.values[at]) * top / 254;
            magnitude += w.magnitudes[at] * top;
          }
        }
        const double bound = rounding + 0x1p-20 * magnitude;
        const double error = std::fabs(y[static_cast<size_t>(r * num_out + c)] - exact);
        check(error <= bound, weight_type_info(type).name, " row ", r, " column ", c, ": off by ", error, ", bound ",
              bound);
      }
    }
  }
}

// Packing loses nothing: with one input at 127, whose code and scale are exact, the product is 127 times the weight but
// for the roundings of the scale, of scale times code, and of the minimum.
void test_one_hot_rows_read_the_weights() {
  std::mt19937 rng(4);
  for (const WeightType type : kTypes) {
    const int64_t num_in = 256, num_out = 19;
    const Weights w = random_weights(type, num_out, num_in, rng);
    std::vector<float> x(static_cast<size_t>(num_in * num_in), 0.0f);
    for (int64_t k = 0; k < num_in; ++k) x[static_cast<size_t>(k * num_in + k)] = 127.0f;
    const std::vector<float> y = multiply(all_kernels().front(), pack_weights(w), x, num_in);
    for (int64_t k = 0; k < num_in; ++k) {
      for (int64_t c = 0; c < num_out; ++c) {
        const auto at = static_cast<size_t>(c * num_in + k);
        const double error = std::fabs(y[static_cast<size_t>(k * num_out + c)] - 127 * w.values[at]);
        check(error <= 127 * w.magnitudes[at] * 3 * 0x1p-24, weight_type_info(type).name, " weight ", c, ", ", k, ": ",
              y[static_cast<size_t>(k * num_out + c)] / 127, " instead of ", w.values[at]);
      }
    }
  }
}

// Several matrices in one call, more threads than panels: every column is written once, and nothing beside it.
void test_jobs_are_shared_out() {
  std::mt19937 rng(5);
  const Weights a = random_weights(WeightType::kQ4_K, 50, 256, rng);
  const Weights b = random_weights(WeightType::kF32, 7, 256, rng);
  const Weights c = random_weights(WeightType::kQ8_0, 33, 256, rng);
  const PackedMatrix packed[] = {pack_weights(a), pack_weights(b), pack_weights(c)};
  const std::vector<float> x = random_rows(3, 256, rng);
  const NamedKernels set = all_kernels().back();
  Activations activations(3, 256);
  activations.set_shape(3, 256);
  std::copy(x.begin(), x.end(), activations.floats());
  quantize_columns_with(*set.kernels, activations, 96, 256);  // by two threads, say
  quantize_columns_with(*set.kernels, activations, 0, 96);
  for (const int threads : {1, 2, 3, 5, 64}) {
    std::vector<std::vector<float>> y(3, std::vector<float>(3 * 60, -1.0f));
    std::vector<MatmulJob> jobs;
    for (int j = 0; j < 3; ++j) jobs.push_back({&packed[j], y[static_cast<size_t>(j)].data(), 60});
    for (int t = 0; t < threads; ++t) matmul_with(*set.kernels, jobs, activations, t, threads);
    for (size_t j = 0; j < 3; ++j) {
      const std::vector<float> expected = multiply(set, packed[j], x, 3);
      for (int64_t i = 0; i < 3 * 60; ++i) {
        const int64_t column = i % 60;
        const auto at = static_cast<size_t>(i / 60 * packed[j].num_out + column);
        const float want = column < packed[j].num_out ? expected[at] : -1;
        check(y[j][static_cast<size_t>(i)] == want, "job ", j, " of ", threads, " threads at ", i);
      }
    }
  }
}

}  // namespace outrider::test
