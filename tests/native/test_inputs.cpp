// What goes into a product: quantised activations and repacked weights.
#include <cmath>
#include <cstring>
#include <limits>

#include "cases.h"
#include "check.h"
#include "formats/half.h"
#include "tests.h"

namespace outrider::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One row of 64 through the quantisation of every set; check_block sees it as a block of one row.
template <class Function>
void quantise_one(const std::vector<float>& x, const Function& check_block) {
  for (const NamedKernels& set : all_kernels()) {
    Activations activations(1, 64);
    activations.set_shape(1, 64);
    std::copy(x.begin(), x.end(), activations.floats());
    quantize_columns_with(*set.kernels, activations, 0, 64);
    check_block(activations.buffers().block(0, 1), set.name);
  }
}

}  // namespace

void test_activation_codes() {
  std::vector<float> x(64, 0.0f);
  const float values[] = {127, -127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49f, 126.5f, -126.5f, 100.25f};
  const int codes[] = {127, -127, 0, 2, 2, 0, -2, 0, 126, -126, 100};
  std::copy(std::begin(values), std::end(values), x.begin());
  x[32] = 1e-40f;  // the second group is next to nothing, but not nothing
  quantise_one(x, [&](const RowBlock& block, std::string_view name) {
    check(block.scales[0] == 1, name, ": scale ", block.scales[0]);
    int sum = 0;
    for (int i = 0; i < 11; ++i) {
      check(block.codes[i] == codes[i], name, ": code of ", values[i], " is ", int{block.codes[i]});
      sum += codes[i];
    }
    check(block.neg_sums[0] == -sum && block.scaled_sums[0] == static_cast<float>(sum), name, ": sum of codes");
    check(block.neg_half_sums[0] == -sum && block.neg_half_sums[1] == 0, name, ": sums of halves");
    check(block.scales[1] > 0 && block.codes[32] == 127, name, ": a subnormal group");
  });
  quantise_one(std::vector<float>(64, 0.0f), [](const RowBlock& block, std::string_view name) {
    check(block.scales[0] == 0 && block.codes[0] == 0 && block.scaled_sums[0] == 0, name, ": a group of zeros");
  });
  quantise_one(std::vector<float>(64, std::numeric_limits<float>::denorm_min()),
               [](const RowBlock& block, std::string_view name) {
                 check(block.scales[0] == 0 && block.codes[0] == 0, name, ": values that vanish");
               });
}

// The row says so, whichever kernel reads it, and its neighbours do not notice.
void test_activations_that_are_not_finite() {
  std::mt19937 rng(6);
  for (const WeightType type : {WeightType::kQ4_K, WeightType::kQ6_K, WeightType::kQ8_0, WeightType::kF16}) {
    const PackedMatrix packed = pack_weights(random_weights(type, 20, 256, rng));
    for (const float bad : {kNaN, -kNaN, kInf, -kInf}) {
      std::vector<float> x = random_rows(3, 256, rng);
      for (const NamedKernels& set : all_kernels()) {
        const std::vector<float> clean = multiply(set, packed, x, 3);
        std::vector<float> dirty_x = x;
        dirty_x[256 + 200] = bad;
        const std::vector<float> dirty = multiply(set, packed, dirty_x, 3);
        for (size_t i = 0; i < dirty.size(); ++i) {
          const bool is_bad = !std::isfinite(dirty[i]);
          check(i / 20 == 1 ? is_bad : dirty[i] == clean[i], set.name, ": ", bad, " gives ", dirty[i], " at ", i);
        }
      }
    }
  }
}

void test_activation_shapes() {
  Activations x(2, 100);
  check_throws<std::invalid_argument>([&] { x.set_shape(3, 100); }, "made for 2 rows");
  check_throws<std::invalid_argument>([&] { x.set_shape(1, 129); }, "do not fit");
  check_throws<std::invalid_argument>([&] { x.set_shape(1, 0); }, "do not fit");
  check_throws<std::invalid_argument>([] { Activations(0, 1); }, "must be positive");
  x.set_shape(2, 128);
  std::fill(x.floats(), x.floats() + 256, 1.0f);
  x.set_shape(2, 65);
  check(x.stride() == 128 && x.floats()[64] == 1 && x.floats()[65] == 0 && x.floats()[255] == 0, "padding is not zero");
  check_throws<std::invalid_argument>([&] { x.quantize_columns(0, 160, Isa::kPortable); }, "rows of 128");
  check_throws<std::invalid_argument>([&] { x.quantize_columns(-32, 32, Isa::kPortable); }, "rows of 128");
  check_throws<std::invalid_argument>([&] { x.quantize_columns(16, 64, Isa::kPortable); }, "are no groups");
  const PackedMatrix packed = pack_weights(from_floats(1, 64, std::vector<float>(64, 1.0f)));
  float y;
  const MatmulJob job{&packed, &y, 1};
  check_throws<std::invalid_argument>([&] { matmul({&job, 1}, x, Isa::kPortable, 0, 1); }, "64 inputs");
}

// y for one-hot rows of 127 is 127 times the weights as held.
std::vector<double> held_weights(const Weights& w, PackAs as) {
  std::vector<float> x(static_cast<size_t>(w.num_in * w.num_in), 0.0f);
  for (int64_t k = 0; k < w.num_in; ++k) x[static_cast<size_t>(k * w.num_in + k)] = 127.0f;
  const std::vector<float> y = multiply(all_kernels().front(), pack_weights(w, as), x, w.num_in);
  std::vector<double> held(y.size());
  for (int64_t k = 0; k < w.num_in; ++k) {
    for (int64_t c = 0; c < w.num_out; ++c) {
      const double product = y[static_cast<size_t>(k * w.num_out + c)];
      held[static_cast<size_t>(c * w.num_in + k)] = product / 127;
    }
  }
  return held;
}

bool is_held_as_in_file(const Weights& w, PackAs as) {
  const PackedMatrix a = pack_weights(w), b = pack_weights(w, as);
  return a.format == b.format && a.data.bytes() == b.data.bytes() &&
         std::memcmp(a.data.as<uint8_t>(), b.data.as<uint8_t>(), a.data.bytes()) == 0;
}

void test_int8_packing() {
  std::mt19937 rng(7);
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBF16}) {
    const Weights w = random_weights(type, 3, 256, rng);
    const std::vector<double> held = held_weights(w, PackAs::kInt8);
    for (size_t g = 0; g < held.size(); g += 32) {
      double top = 0;
      for (size_t i = g; i < g + 32; ++i) top = std::max(top, std::fabs(w.values[i]));
      for (size_t i = g; i < g + 32; ++i) {
        check(std::fabs(held[i] - w.values[i]) <= top / 127 * 0.501, weight_type_info(type).name, ": ", held[i],
              " held for ", w.values[i]);
      }
    }
  }
  for (const WeightType type : {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1,
                                WeightType::kQ8_0, WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K})
    check(is_held_as_in_file(random_weights(type, 3, 256, rng), PackAs::kInt8), weight_type_info(type).name,
          ": codes of the file must not be rounded again");
}

void test_int8_packing_at_the_limits() {
  const auto held = [](float value) {
    return held_weights(from_floats(1, 33, std::vector<float>(33, value)), PackAs::kInt8)[32];
  };
  check(std::fabs(held(8.3e6f) / 8.3e6 - 1) < 1e-3, "the largest weight there can be: ", held(8.3e6f));
  check(held(0) == 0, "zero");
  // The smallest scale of a float16 is 2^-24: what lies below is held to within half of that.
  for (const float tiny : {1e-5f, 1e-6f, 1e-7f, 1.7e-8f, 1e-30f}) {
    check(std::fabs(held(tiny) - tiny) <= 0x1p-25, tiny, " is held as ", held(tiny));
  }
  check_throws<std::invalid_argument>([&] { held(9e6f); }, "beyond what 8-bit codes");
  check_throws<std::invalid_argument>([&] { held(kInf); }, "not finite");
  check_throws<std::invalid_argument>([&] { held(kNaN); }, "not finite");
}

// The search must do better than the scale of the largest magnitude, and never worse in any group.
void test_int4_packing() {
  std::mt19937 rng(8);
  double total = 0, total_of_largest = 0;
  for (const WeightType type : {WeightType::kF32, WeightType::kQ6_K, WeightType::kBF16, WeightType::kQ8_0}) {
    const Weights w = random_weights(type, 3, 256, rng);
    const std::vector<double> held = held_weights(w, PackAs::kInt4);
    for (size_t g = 0; g < held.size(); g += 32) {
      double top = 0, error = 0, error_of_largest = 0;
      for (size_t i = g; i < g + 32; ++i) top = std::fabs(w.values[i]) > std::fabs(top) ? w.values[i] : top;
      for (size_t i = g; i < g + 32; ++i) {
        const double code = top == 0 ? 0 : std::min(std::nearbyint(w.values[i] / (top / -8)), 7.0);
        error += std::pow(held[i] - w.values[i], 2);
        error_of_largest += std::pow(code * top / -8 - w.values[i], 2);
      }
      check(error <= error_of_largest * 1.02, weight_type_info(type).name, ": squared error ", error, " against ",
            error_of_largest);
      total += top == 0 ? 0 : error / (top * top), total_of_largest += top == 0 ? 0 : error_of_largest / (top * top);
    }
  }
  check(total < 0.95 * total_of_largest, "the search gains nothing: ", total, " against ", total_of_largest);
  for (const WeightType type : {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ4_K})
    check(is_held_as_in_file(random_weights(type, 3, 256, rng), PackAs::kInt4), "4-bit files must not be requantised");
}

void test_int4_packing_at_the_limits() {
  const auto held = [](float value) {
    return held_weights(from_floats(1, 33, std::vector<float>(33, value)), PackAs::kInt4)[32];
  };
  for (const float value : {65504.0f, -65504.0f, 1.0f, -3e-3f})
    check(std::fabs(held(value) / value - 1) < 1e-3, value, " is held as ", held(value));
  check(held(0) == 0, "zero");
  for (const float tiny : {1e-6f, 1e-7f, 1e-30f, 1e-45f})
    check(std::fabs(held(tiny) - tiny) <= 0x1p-21, tiny, " is held as ", held(tiny));
  check_throws<std::invalid_argument>([&] { held(7e4f); }, "beyond what 4-bit codes");
  check_throws<std::invalid_argument>([&] { held(-kInf); }, "not finite");
  check_throws<std::invalid_argument>([&] { held(kNaN); }, "not finite");
}

void test_bfloat16_packing() {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, 1.0039064f, -3.14159265f, 1e-40f, 3.4e38f};
  const std::vector<float> expected = {1.0f, 1.0f, 1.015625f, 1.0078125f, -3.140625f, 9.18354962e-41f, kInf};
  const PackedMatrix packed = pack_weights(from_floats(1, 7, values), PackAs::kBFloat16);
  check(!packed.quantised && packed.data.bytes() == 7 * 64, "layout");
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, packed.data.as<uint8_t>() + 64 * i, sizeof bits);
    check(bf16_to_float(bits) == expected[i], values[i], " became ", bf16_to_float(bits));
  }
}

void test_pack_checks_sizes() {
  ThreadPool pool(1);
  const std::vector<uint8_t> src(144);
  const auto pack_q4k = [&](int64_t num_out, int64_t num_in) {
    pack(WeightType::kQ4_K, src, num_out, num_in, PackAs::kFile, pool);
  };
  pack_q4k(1, 256);
  check_throws<std::invalid_argument>([&] { pack_q4k(2, 256); }, "does not match");
  check_throws<std::invalid_argument>([&] { pack_q4k(0, 256); }, "does not match");
  check_throws<std::invalid_argument>([&] { pack_q4k(-1, 256); }, "does not match");
  check_throws<std::invalid_argument>([&] { pack_q4k(int64_t{1} << 62, 256); }, "does not match");
  check_throws<std::invalid_argument>([&] { pack_q4k(1, 128); }, "multiple of 256");
  check_throws<std::invalid_argument>([&] { pack_q4k(1, 0); }, "multiple of 256");
  check_throws<std::invalid_argument>([&] { pack_q4k(1, int64_t{1} << 60); }, "not possible");
}

// Every float16 comes back from a float; what lies between two goes to the nearer one, from the middle to the even one.
void test_halves_round_to_even() {
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float low = f16_to_float(half);
    const float high = h + 1 == 0x7c00 ? 65536.0f : f16_to_float(static_cast<uint16_t>(h + 1));
    const float middle = (low + high) / 2;
    check(float_to_f16(low) == half && float_to_f16(-low) == (half | 0x8000), "float16 ", h, " does not come back");
    check(float_to_f16(middle) == h + (h & 1), "the middle above float16 ", h);
    check(float_to_f16(std::nextafter(middle, 0.0f)) == half, "below the middle above float16 ", h);
    check(float_to_f16(std::nextafter(middle, kInf)) == h + 1, "beyond the middle above float16 ", h);
  }
  check(std::isnan(f16_to_float(float_to_f16(kNaN))) && float_to_f16(-kInf) == 0xfc00, "float16 of NaN and infinity");
  check(std::isnan(bf16_to_float(float_to_bf16(kNaN))), "bfloat16 of NaN");
  check(float_to_bf16(-kInf) == 0xff80, "bfloat16 of infinity");
}

}  // namespace outrider::test
