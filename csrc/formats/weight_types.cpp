#include "formats/weight_types.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "formats/blocks.h"
#include "formats/half.h"

namespace outrider {
namespace {

// In the order of the enumeration. The ids are those of enum ggml_type (ggml.h).
constexpr WeightTypeInfo kTypes[] = {
    {WeightType::kF32, "F32", 0, 1, 4},         {WeightType::kF16, "F16", 1, 1, 2},
    {WeightType::kBF16, "BF16", 30, 1, 2},      {WeightType::kQ4_0, "Q4_0", 2, 32, 18},
    {WeightType::kQ4_1, "Q4_1", 3, 32, 20},     {WeightType::kQ5_0, "Q5_0", 6, 32, 22},
    {WeightType::kQ5_1, "Q5_1", 7, 32, 24},     {WeightType::kQ8_0, "Q8_0", 8, 32, 34},
    {WeightType::kQ4_K, "Q4_K", 12, 256, 144},  {WeightType::kQ5_K, "Q5_K", 13, 256, 176},
    {WeightType::kQ6_K, "Q6_K", 14, 256, 210},
};

void copy_floats(WeightType type, const uint8_t* src, int64_t n, float* dst) {
  if (type == WeightType::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = static_cast<uint16_t>(src[2 * i] | src[2 * i + 1] << 8);
    dst[i] = type == WeightType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
  }
}

// scale * (code - offset) - min, with the roundings of the reference: d * scale first.
void dequantize_block(const WeightTypeInfo& info, const QuantBlock& block, float* dst) {
  const bool k = info.block_elements == 256;
  const bool has_min = code_offset(info.type) == 0;
  const int group = !k ? 32 : info.type == WeightType::kQ6_K ? 16 : 32;
  const auto offset = static_cast<float>(code_offset(info.type));
  const float d = f16_to_float(block.d);
  for (int g = 0; g < info.block_elements / group; ++g) {
    float scale = d;
    float min = 0;
    if (k) scale *= static_cast<float>(has_min ? block.scales[g] : static_cast<int8_t>(block.scales[g]));
    if (has_min) min = k ? f16_to_float(block.min) * static_cast<float>(block.mins[g]) : -f16_to_float(block.min);
    for (int i = g * group; i < (g + 1) * group; ++i) {
      const float value = scale * (static_cast<float>(block.codes[i]) - offset);
      dst[i] = has_min ? value - min : value;
    }
  }
}

}  // namespace

const WeightTypeInfo& weight_type_info(WeightType type) {
  const auto index = static_cast<size_t>(type);
  if (index >= std::size(kTypes)) throw std::invalid_argument("not a weight type: " + std::to_string(index));
  return kTypes[index];
}

const WeightTypeInfo* find_weight_type(std::string_view name) {
  for (const WeightTypeInfo& info : kTypes) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

const WeightTypeInfo* find_weight_type(uint32_t ggml_id) {
  for (const WeightTypeInfo& info : kTypes) {
    if (info.ggml_id == ggml_id) return &info;
  }
  return nullptr;
}

int64_t row_bytes(WeightType type, int64_t n) {
  const WeightTypeInfo& info = weight_type_info(type);
  if (n <= 0 || n % info.block_elements != 0 || n > (int64_t{1} << 40)) {
    throw std::invalid_argument("a row of " + std::to_string(n) + " " + std::string(info.name) +
                                " elements is not possible; it must be a positive multiple of " +
                                std::to_string(info.block_elements));
  }
  return n / info.block_elements * info.block_bytes;
}

void dequantize_row(WeightType type, const uint8_t* src, int64_t n, float* dst) {
  row_bytes(type, n);  // checks n
  const WeightTypeInfo& info = weight_type_info(type);
  if (info.block_elements == 1) return copy_floats(type, src, n, dst);
  QuantBlock block;
  for (int64_t i = 0; i < n; i += info.block_elements, src += info.block_bytes) {
    decode_block(type, src, block);
    dequantize_block(info, block, dst + i);
  }
}

}  // namespace outrider
