// The element types of model files, and their exact values.
#pragma once

#include <cstdint>
#include <string_view>

namespace outrider {

enum class WeightType { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

struct WeightTypeInfo {
  WeightType type;
  std::string_view name;  // as in GGUF: "Q4_K"
  uint32_t ggml_id;       // as in a GGUF tensor header
  int block_elements;     // elements that share a block: 1, 32 or 256
  int block_bytes;
};

const WeightTypeInfo& weight_type_info(WeightType type);
const WeightTypeInfo* find_weight_type(std::string_view name);  // nullptr when unknown
const WeightTypeInfo* find_weight_type(uint32_t ggml_id);       // nullptr when unknown
// Bytes of a row of n elements. Throws std::invalid_argument when n is not a positive multiple of the block.
int64_t row_bytes(WeightType type, int64_t n);
// The float32 values of one row; src holds row_bytes(type, n) bytes, any alignment.
void dequantize_row(WeightType type, const uint8_t* src, int64_t n, float* dst);

}  // namespace outrider
