// What the file parser makes of any bytes: a refusal, or views that can be read to the last byte.
#include <cstdint>
#include <stdexcept>
#include <variant>
#include <vector>

#include "formats/gguf.h"
#include "formats/weight_types.h"

namespace {

using namespace outrider;

// A sum that the compiler cannot leave out, of every byte that a view promises.
volatile uint64_t sink;
void read(std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) sink = sink + byte;
}
void read(std::string_view text) {
  for (const char c : text) sink = sink + static_cast<uint8_t>(c);
}

struct Reader {
  void operator()(std::string_view text) const { read(text); }
  void operator()(const GgufArray& array) const {
    read(array.bytes);
    for (const std::string_view text : array.strings) read(text);
  }
  template <class Number>
  void operator()(Number value) const { sink = sink + (value != Number{}); }
};

void read(const GgufTensor& tensor) {
  read(tensor.name);
  read(tensor.data);
  const auto columns = static_cast<int64_t>(tensor.shape.back());
  const int64_t bytes = row_bytes(tensor.type->type, columns);
  std::vector<float> row(tensor.shape.back());
  for (int64_t at = 0; at + bytes <= static_cast<int64_t>(tensor.data.size()); at += bytes)
    dequantize_row(tensor.type->type, tensor.data.data() + at, columns, row.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const GgufFile file = parse_gguf({data, size});
    for (const auto& [key, value] : file.metadata) {
      read(key);
      std::visit(Reader{}, value);
    }
    for (const GgufTensor& tensor : file.tensors) read(tensor);
  } catch (const std::invalid_argument&) {  // the only error that callers know
  }
  return 0;
}
