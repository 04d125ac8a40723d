// kernel_tests list | kernel_tests NAME... | kernel_tests dequantize TYPE < block bytes > float32
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "formats/weight_types.h"
#include "tests.h"

namespace {

using namespace outrider;
using namespace outrider::test;

#define TEST(name) {#name, test_##name}
const std::map<std::string, void (*)()> kTests = {
    TEST(all_ways_agree),
    TEST(many_rows_agree),
    TEST(extreme_codes),
    TEST(close_to_exact),
    TEST(one_hot_rows_read_the_weights),
    TEST(jobs_are_shared_out),
    TEST(activation_codes),
    TEST(activations_that_are_not_finite),
    TEST(activation_shapes),
    TEST(int8_packing),
    TEST(int8_packing_at_the_limits),
    TEST(int4_packing),
    TEST(int4_packing_at_the_limits),
    TEST(bfloat16_packing),
    TEST(pack_checks_sizes),
    TEST(halves_round_to_even),
    TEST(row_functions_agree),
    TEST(attention_agrees),
    TEST(attention_is_close_to_exact),
    TEST(attention_does_not_see_later_rows),
    TEST(attention_does_not_see_what_lies_before_the_window),
    TEST(windows_agree),
    TEST(silu_is_close_to_exact),
    TEST(gelu_is_close_to_exact),
    TEST(norm_of_a_head_takes_nothing_beyond_it),
    TEST(cache_takes_nothing_beyond_a_head),
    TEST(heads_are_quantised_closely),
    TEST(pool_calls_every_thread),
    TEST(pool_passes_exceptions_on),
    TEST(pool_sizes),
    TEST(isa_names),
};

int dequantize(const std::string& name) {
  const WeightTypeInfo* const info = find_weight_type(name);
  check(info != nullptr, "no weight type ", name);
  std::vector<uint8_t> src;
  for (int c; (c = std::getchar()) != EOF;) src.push_back(static_cast<uint8_t>(c));
  const auto n = static_cast<int64_t>(src.size()) / info->block_bytes * info->block_elements;
  check(row_bytes(info->type, n) == static_cast<int64_t>(src.size()), "half a block");
  std::vector<float> values(static_cast<size_t>(n));
  dequantize_row(info->type, src.data(), n, values.data());
  return std::fwrite(values.data(), sizeof(float), values.size(), stdout) == values.size() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 2 && args[0] == "dequantize") return dequantize(args[1]);
    if (args.size() == 1 && args[0] == "list") {
      for (const auto& [name, test] : kTests) std::printf("%s\n", name.c_str());
      return 0;
    }
    for (const std::string& name : args) kTests.at(name)();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
