// All tests, by name in main.cpp.
#pragma once

#include "formats/blocks.h"

namespace outrider::test {

inline bool code_has_min(WeightType type) { return code_offset(type) == 0; }

void test_all_ways_agree();
void test_many_rows_agree();
void test_extreme_codes();
void test_close_to_exact();
void test_one_hot_rows_read_the_weights();
void test_jobs_are_shared_out();

void test_activation_codes();
void test_activations_that_are_not_finite();
void test_activation_shapes();

void test_int8_packing();
void test_int8_packing_at_the_limits();
void test_int4_packing();
void test_int4_packing_at_the_limits();
void test_bfloat16_packing();
void test_pack_checks_sizes();
void test_halves_round_to_even();

void test_row_functions_agree();
void test_attention_agrees();
void test_attention_is_close_to_exact();
void test_attention_does_not_see_later_rows();
void test_attention_does_not_see_what_lies_before_the_window();
void test_windows_agree();
void test_silu_is_close_to_exact();
void test_gelu_is_close_to_exact();
void test_norm_of_a_head_takes_nothing_beyond_it();
void test_cache_takes_nothing_beyond_a_head();
void test_heads_are_quantised_closely();

void test_pool_calls_every_thread();
void test_pool_passes_exceptions_on();
void test_pool_sizes();
void test_isa_names();

}  // namespace outrider::test
