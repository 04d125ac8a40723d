#include "gguf_bindings.h"

#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>

#include "gguf.h"

namespace nb = nanobind;

namespace outrider {
namespace {

using FileBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::object to_str(std::string_view text) {
  PyObject* object = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict");
  if (object == nullptr) {
    PyErr_Clear();
    throw std::invalid_argument("a string of " + std::to_string(text.size()) +
                                " bytes is not valid UTF-8; the file is damaged: fetch it again");
  }
  return nb::steal(object);
}

const char* dtype_of(GgufType type) {
  switch (type) {
    case GgufType::kUint8: return "u1";
    case GgufType::kInt8: return "i1";
    case GgufType::kUint16: return "<u2";
    case GgufType::kInt16: return "<i2";
    case GgufType::kUint32: return "<u4";
    case GgufType::kInt32: return "<i4";
    case GgufType::kFloat32: return "<f4";
    case GgufType::kBool: return "u1";
    case GgufType::kUint64: return "<u8";
    case GgufType::kInt64: return "<i8";
    case GgufType::kFloat64: return "<f8";
    default: throw std::invalid_argument("an array of this type has no number format");
  }
}

// Strings become a list of str, made here because a model has some 300,000 of them; numbers a NumPy array.
nb::object to_object(const GgufArray& array) {
  if (array.type != GgufType::kString) {
    const nb::bytes copy(array.bytes.data(), array.bytes.size());
    return nb::module_::import_("numpy").attr("frombuffer")(copy, dtype_of(array.type));
  }
  nb::list list;
  for (std::string_view text : array.strings) list.append(to_str(text));
  return list;
}

struct ToObject {
  nb::object operator()(uint64_t value) const { return nb::int_(value); }
  nb::object operator()(int64_t value) const { return nb::int_(value); }
  nb::object operator()(double value) const { return nb::float_(value); }
  nb::object operator()(bool value) const { return nb::bool_(value); }
  nb::object operator()(std::string_view value) const { return to_str(value); }
  nb::object operator()(const GgufArray& value) const { return to_object(value); }
};

nb::tuple to_tuple(const GgufTensor& tensor, const uint8_t* begin) {
  nb::list shape;
  for (uint64_t size : tensor.shape) shape.append(size);
  return nb::make_tuple(to_str(tensor.name), to_str(tensor.type->name), nb::tuple(shape),
                        static_cast<uint64_t>(tensor.data.data() - begin), tensor.data.size());
}

nb::tuple parse(const FileBytes& file) {
  const GgufFile parsed = parse_gguf({file.data(), file.size()});
  nb::dict metadata;
  for (const auto& [key, value] : parsed.metadata) metadata[to_str(key)] = std::visit(ToObject{}, value);
  nb::list tensors;
  for (const GgufTensor& tensor : parsed.tensors) tensors.append(to_tuple(tensor, file.data()));
  return nb::make_tuple(metadata, tensors);
}

}  // namespace

void bind_gguf(nb::module_& module) {
  module.def("parse_gguf", &parse, nb::arg("file"),
             "Check the header of a GGUF file; return its metadata and (name, type, shape, offset, bytes) per tensor.");
}

}  // namespace outrider
