// The header of a GGUF file (versions 2 and 3): metadata and where each tensor lies.
//
// The file is hostile until checked. Every count, length, offset, product and type is compared with what the file can
// hold before it is used, so nothing is allocated or read on the word of the file alone. What is wrong is said by
// std::invalid_argument: the value, the limit and what to do.
// Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weight_types.h"

namespace outrider {

// Numbers as in the file.
enum class GgufType : uint32_t {
  kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kFloat32, kBool, kString, kArray, kUint64, kInt64, kFloat64
};

// Elements of a fixed size as they lie in the file (little-endian, any alignment), or the strings.
struct GgufArray {
  GgufType type;
  uint64_t count;
  std::span<const uint8_t> bytes;         // empty for strings
  std::vector<std::string_view> strings;  // empty for everything else
};

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string_view name;
  const WeightTypeInfo* type;
  std::vector<uint64_t> shape;  // the slowest dimension first: (out, in) for a matrix
  std::span<const uint8_t> data;
};

// Views of the parsed memory, which must outlive it.
struct GgufFile {
  std::vector<std::pair<std::string_view, GgufValue>> metadata;  // keys are unique
  std::vector<GgufTensor> tensors;                               // names are unique, data does not overlap
};

GgufFile parse_gguf(std::span<const uint8_t> file);

}  // namespace outrider
