// What a request's settings make of a row of logits: all that is done to it before temperature.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/kernels.h"

namespace outrider {

// The order is that of src/outrider/sampling/processors.py. Ids are distinct within each list and lie in the row.
struct Shaping {
  std::span<const int64_t> bias_ids;
  std::span<const float> biases;  // of each of them
  std::span<const int64_t> seen_ids;       // what the repetition penalty is about
  std::span<const int64_t> output_counts;  // of each of them; what the other two penalties are about
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  const uint8_t* allowed = nullptr;  // a bit for each token, the lowest first; none to allow all
  std::span<const int64_t> excluded_ids;
};

// Shapes a row in place. Returns false if it holds NaN or plus infinity, or no token at all; all that is wrong is then
// still in it, and nothing but masked entries is changed.
bool shape_row(std::span<float> row, const Shaping& shaping, const SamplingKernels& kernels);

}  // namespace outrider
