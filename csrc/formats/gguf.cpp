#include "gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

namespace outrider {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is little-endian and read without swapping");

constexpr uint64_t kMaxKeyBytes = 65535;  // from the format's description
constexpr uint64_t kMaxNameBytes = 63;    // ggml's GGML_MAX_NAME, less the final zero
constexpr uint32_t kMaxDimensions = 4;    // ggml's GGML_MAX_DIMS
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr std::array<size_t, 13> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // by GgufType

constexpr const char* kDamaged = "; the file is damaged or truncated: fetch it again";

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

std::string number(uint64_t value) { return std::to_string(value); }

// Text from the file, fit for one line of an error message.
std::string quoted(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string out = "'";
  for (char c : text.substr(0, kShown)) out += (c >= ' ' && c <= '~') ? c : '?';
  return out + (text.size() > kShown ? "...'" : "'");
}

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> file) : file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.size() - position_; }
  // What is being read, for error messages.
  std::string item = "the header";

  std::span<const uint8_t> take(uint64_t bytes) {
    if (bytes > left())
      fail(item + " wants " + number(bytes) + " bytes at offset " + number(position_) + ", the file has " +
           number(left()) + " left" + kDamaged);
    const auto view = file_.subspan(position_, bytes);
    position_ += bytes;
    return view;
  }

  template <class T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view string(uint64_t max_bytes = UINT64_MAX) {
    const uint64_t length = read<uint64_t>();
    if (length > max_bytes)
      fail(item + " has a name of " + number(length) + " bytes, the limit is " + number(max_bytes) + kDamaged);
    const auto view = take(length);
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }

  // A number of things of at least `least_bytes` each, which the rest of the file must be able to hold.
  uint64_t count(const char* of_what, uint64_t least_bytes) {
    const uint64_t value = read<uint64_t>();
    if (value > left() / least_bytes)
      fail(item + " counts " + number(value) + " " + of_what + ", the rest of the file can hold at most " +
           number(left() / least_bytes) + kDamaged);
    return value;
  }

  bool boolean() {
    const uint8_t value = read<uint8_t>();
    if (value > 1) fail(item + " is a boolean of value " + number(value) + ", not 0 or 1" + kDamaged);
    return value == 1;
  }

  GgufType type() {
    const uint32_t value = read<uint32_t>();
    if (value >= kTypeBytes.size())
      fail(item + " has metadata type " + number(value) + ", the highest known is " +
           number(kTypeBytes.size() - 1) + kDamaged);
    return static_cast<GgufType>(value);
  }

 private:
  std::span<const uint8_t> file_;
  uint64_t position_ = 0;
};

GgufArray read_array(Cursor& in) {
  GgufArray array{in.type(), 0, {}, {}};
  if (array.type == GgufType::kArray) fail(in.item + " is an array of arrays, which no supported model has");
  if (array.type == GgufType::kString) {
    array.count = in.count("strings", sizeof(uint64_t));
    for (uint64_t i = 0; i < array.count; ++i) array.strings.push_back(in.string());
    return array;
  }
  const size_t element_bytes = kTypeBytes[static_cast<size_t>(array.type)];
  array.count = in.count("elements", element_bytes);
  array.bytes = in.take(array.count * element_bytes);
  return array;
}

GgufValue read_value(Cursor& in, GgufType type) {
  switch (type) {
    case GgufType::kUint8: return uint64_t{in.read<uint8_t>()};
    case GgufType::kUint16: return uint64_t{in.read<uint16_t>()};
    case GgufType::kUint32: return uint64_t{in.read<uint32_t>()};
    case GgufType::kUint64: return in.read<uint64_t>();
    case GgufType::kInt8: return int64_t{in.read<int8_t>()};
    case GgufType::kInt16: return int64_t{in.read<int16_t>()};
    case GgufType::kInt32: return int64_t{in.read<int32_t>()};
    case GgufType::kInt64: return in.read<int64_t>();
    case GgufType::kFloat32: return double{in.read<float>()};
    case GgufType::kFloat64: return in.read<double>();
    case GgufType::kBool: return in.boolean();
    case GgufType::kString: return in.string();
    case GgufType::kArray: return read_array(in);
  }
  fail(in.item + " has an unknown metadata type");
}

// ggml's names of types that exist and are not supported here, so that a message can say which one it is.
std::string_view unsupported_type_name(uint32_t ggml_id) {
  switch (ggml_id) {
    case 9: return "Q8_1";
    case 10: return "Q2_K";
    case 11: return "Q3_K";
    case 15: return "Q8_K";
    case 16: return "IQ2_XXS";
    case 17: return "IQ2_XS";
    case 18: return "IQ3_XXS";
    case 19: return "IQ1_S";
    case 20: return "IQ4_NL";
    case 21: return "IQ3_S";
    case 22: return "IQ2_S";
    case 23: return "IQ4_XS";
    case 24: return "I8";
    case 25: return "I16";
    case 26: return "I32";
    case 27: return "I64";
    case 28: return "F64";
    case 29: return "IQ1_M";
    case 34: return "TQ1_0";
    case 35: return "TQ2_0";
    case 39: return "MXFP4";
    default: return "unknown";
  }
}

const WeightTypeInfo* read_weight_type(Cursor& in) {
  const uint32_t id = in.read<uint32_t>();
  const WeightTypeInfo* info = find_weight_type(id);
  if (info == nullptr)
    fail(in.item + " has type " + number(id) + " (" + std::string(unsupported_type_name(id)) +
         "), which is not supported; use F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K");
  return info;
}

std::vector<uint64_t> read_shape(Cursor& in) {
  const uint32_t num_dimensions = in.read<uint32_t>();
  if (num_dimensions == 0 || num_dimensions > kMaxDimensions)
    fail(in.item + " has " + number(num_dimensions) + " dimensions, not 1 to " + number(kMaxDimensions) + kDamaged);
  std::vector<uint64_t> shape(num_dimensions);
  for (uint64_t& size : shape) size = in.read<uint64_t>();
  std::reverse(shape.begin(), shape.end());  // the file names the fastest dimension first
  return shape;
}

// Bytes of a tensor; at most `limit`, which also keeps every product below from overflowing.
uint64_t tensor_bytes(const Cursor& in, const WeightTypeInfo& type, const std::vector<uint64_t>& shape,
                      uint64_t limit) {
  const auto block = static_cast<uint64_t>(type.block_elements);
  if (shape.back() % block != 0)
    fail(in.item + " has rows of " + number(shape.back()) + " elements, not a multiple of the " + number(block) +
         " in a block of " + std::string(type.name) + kDamaged);
  uint64_t bytes = static_cast<uint64_t>(type.block_bytes);
  for (size_t i = 0; i < shape.size(); ++i) {
    const uint64_t size = i + 1 == shape.size() ? shape[i] / block : shape[i];
    if (size == 0) fail(in.item + " has a dimension of size 0" + kDamaged);
    if (bytes > limit / size)
      fail(in.item + " wants more than the " + number(limit) + " bytes that the file has for tensors" + kDamaged);
    bytes *= size;
  }
  return bytes;
}

struct TensorHeader {
  GgufTensor tensor;
  uint64_t offset;
};

TensorHeader read_tensor_header(Cursor& in) {
  TensorHeader header{};
  header.tensor.name = in.string(kMaxNameBytes);
  in.item = "tensor " + quoted(header.tensor.name);
  header.tensor.shape = read_shape(in);
  header.tensor.type = read_weight_type(in);
  header.offset = in.read<uint64_t>();
  return header;
}

template <class Items, class NameOf>
void check_unique(const Items& items, const char* what, NameOf name_of) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const auto& item : items) names.push_back(name_of(item));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(std::string(what) + " " + quoted(*twice) + " occurs twice" + kDamaged);
}

void check_no_overlap(const std::vector<GgufTensor>& tensors) {
  std::vector<const GgufTensor*> ordered;
  ordered.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) ordered.push_back(&tensor);
  std::sort(ordered.begin(), ordered.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->data.data() < b->data.data(); });
  for (size_t i = 1; i < ordered.size(); ++i)
    if (ordered[i - 1]->data.data() + ordered[i - 1]->data.size() > ordered[i]->data.data())
      fail("tensors " + quoted(ordered[i - 1]->name) + " and " + quoted(ordered[i]->name) + " overlap" + kDamaged);
}

uint64_t alignment_of(const GgufFile& file) {
  for (const auto& [key, value] : file.metadata) {
    if (key != "general.alignment") continue;
    const uint64_t* alignment = std::get_if<uint64_t>(&value);
    if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment > kMaxAlignment)
      fail("general.alignment" + (alignment ? " is " + number(*alignment) : std::string(" has the wrong type")) +
           "; it must be a power of two up to " + number(kMaxAlignment) + kDamaged);
    return *alignment;
  }
  return 32;
}

void check_magic_and_version(Cursor& in) {
  const auto magic = in.take(4);
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    fail("the file begins with " + quoted({reinterpret_cast<const char*>(magic.data()), 4}) +
         ", not with 'GGUF': it is not a GGUF file");
  const uint32_t version = in.read<uint32_t>();
  if (version == 0x02000000 || version == 0x03000000)
    fail("the file is big-endian GGUF; convert it to little-endian with gguf-py's gguf_convert_endian.py");
  if (version != 2 && version != 3)
    fail("the file has GGUF version " + number(version) + "; versions 2 and 3 are supported: convert the model anew");
}

}  // namespace

GgufFile parse_gguf(std::span<const uint8_t> file) {
  Cursor in(file);
  check_magic_and_version(in);
  // The least that a tensor takes: name length, dimensions (one), type, offset. And a value: key length, type, a byte.
  const uint64_t num_tensors = in.count("tensors", 8 + 4 + 8 + 4 + 8);
  const uint64_t num_values = in.count("metadata values", 8 + 4 + 1);

  GgufFile result;
  for (uint64_t i = 0; i < num_values; ++i) {
    in.item = "metadata value " + number(i);
    const std::string_view key = in.string(kMaxKeyBytes);
    in.item = "metadata " + quoted(key);
    const GgufType type = in.type();
    result.metadata.emplace_back(key, read_value(in, type));
  }
  check_unique(result.metadata, "metadata", [](const auto& entry) { return entry.first; });

  std::vector<TensorHeader> headers;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    in.item = "tensor " + number(i);
    headers.push_back(read_tensor_header(in));
  }

  const uint64_t alignment = alignment_of(result);
  const uint64_t begin = std::min<uint64_t>((in.position() + alignment - 1) / alignment * alignment, file.size());
  const uint64_t room = file.size() - begin;
  result.tensors.reserve(headers.size());
  for (TensorHeader& header : headers) {
    in.item = "tensor " + quoted(header.tensor.name);
    const uint64_t bytes = tensor_bytes(in, *header.tensor.type, header.tensor.shape, room);
    if (header.offset % alignment != 0)
      fail(in.item + " lies at offset " + number(header.offset) + ", not a multiple of the alignment " +
           number(alignment) + kDamaged);
    if (header.offset > room - bytes)
      fail(in.item + " ends at byte " + number(header.offset) + " + " + number(bytes) + " of the " + number(room) +
           " that the file has for tensors" + kDamaged);
    header.tensor.data = file.subspan(begin + header.offset, bytes);
    result.tensors.push_back(std::move(header.tensor));
  }
  check_unique(result.tensors, "tensor", [](const GgufTensor& tensor) { return tensor.name; });
  check_no_overlap(result.tensors);
  return result;
}

}  // namespace outrider
