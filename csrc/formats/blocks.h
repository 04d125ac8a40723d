// The quantised blocks of GGUF files, taken apart without loss. Internal to formats/ and matmul/.
//
// Every type is affine: weight = scale_g * (code - offset) - min_g for each group g of the block, where
//   blocks of 32:  one group, scale = d, min = -m (the file adds its m)
//   Q4_K, Q5_K:    eight groups of 32, scale_g = d * scales[g], min_g = dmin * mins[g]
//   Q6_K:          sixteen groups of 16, scale_g = d * scales[g] with signed scales
// Layouts: ggml-common.h and gguf/quants.py of ggml-org/llama.cpp.
#pragma once

#include <cstdint>

#include "formats/weight_types.h"

namespace outrider {

struct QuantBlock {
  uint8_t codes[256];  // block_elements of them
  uint16_t d;          // float16 bits
  uint16_t min;        // float16 bits: m or dmin; unset for types without a minimum
  uint8_t scales[16];  // K types only; the bits of an int8 for Q6_K
  uint8_t mins[8];     // Q4_K and Q5_K only
};

// What a code is relative to: 8, 16, 32, 128, or 0 for types with a minimum.
int code_offset(WeightType type);
// Throws std::invalid_argument for the floating types.
void decode_block(WeightType type, const uint8_t* src, QuantBlock& out);

}  // namespace outrider
