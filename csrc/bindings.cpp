// outrider._core: the native core as Python sees it. src/outrider/_core.pyi has the types and the documentation.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf_bindings.h"
#include "model/model.h"
#include "sampling/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Shares an object of Python's with threads that do not hold its lock.
std::shared_ptr<const void> keep_alive(Bytes bytes) {
  return {new Bytes(std::move(bytes)), [](const void* p) {
            const nb::gil_scoped_acquire gil;
            delete static_cast<const Bytes*>(p);
          }};
}

PackAs pack_as_from(const std::string& name) {
  if (name == "file") return PackAs::kFile;
  if (name == "int8") return PackAs::kInt8;
  if (name == "int4") return PackAs::kInt4;
  if (name == "bfloat16") return PackAs::kBFloat16;
  throw std::invalid_argument("weights cannot be held as '" + name + "'; use 'file', 'int8', 'int4' or 'bfloat16'");
}

void add_tensor(Model& model, std::string role, std::optional<int64_t> layer, const std::string& type,
                std::vector<int64_t> shape, Bytes data, const std::string& pack_as) {
  const WeightTypeInfo* info = find_weight_type(std::string_view(type));
  if (info == nullptr)
    throw std::invalid_argument("tensor " + role + " has type '" + type + "', which the core cannot read");
  const std::span<const uint8_t> view(data.data(), data.size());
  const Tensor tensor{std::move(role), layer, info->type, std::move(shape), view, keep_alive(std::move(data))};
  const PackAs as = pack_as_from(pack_as);
  const nb::gil_scoped_release no_gil;
  model.add(tensor, as);
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> forward(Model& model, std::vector<int64_t> sequences,
                                                    std::vector<std::vector<int64_t>> tokens,
                                                    const std::vector<int64_t>& num_logits,
                                                    std::vector<std::optional<std::vector<int64_t>>> parents) {
  const size_t count = sequences.size();
  if (tokens.size() != count || num_logits.size() != count || parents.size() != count)
    throw std::invalid_argument("the lists of sequences, tokens, num_logits and parents differ in length");
  std::vector<Request> requests;
  for (size_t i = 0; i < sequences.size(); ++i)
    requests.push_back({sequences[i], std::move(tokens[i]), num_logits[i], std::move(parents[i])});
  Logits logits;
  {
    const nb::gil_scoped_release no_gil;
    logits = model.forward(requests);
  }
  using Owner = std::shared_ptr<AlignedBuffer>;
  float* values = logits.values->as<float>();
  const nb::capsule owner(new Owner(std::move(logits.values)),
                          [](void* p) noexcept { delete static_cast<Owner*>(p); });
  const size_t shape[] = {static_cast<size_t>(logits.num_rows), static_cast<size_t>(model.config().vocab_size)};
  return nb::ndarray<nb::numpy, float, nb::ndim<2>>(values, 2, shape, owner);
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const Isa isa : available_isas()) names.emplace_back(isa_name(isa));
  return names;
}

}  // namespace

NB_MODULE(_core, m) {
  nb::exception<ContextOverflow>(m, "ContextOverflow", PyExc_ValueError);

  nb::class_<ModelConfig>(m, "ModelConfig")
      .def(nb::init<>())
      .def_rw("vocab_size", &ModelConfig::vocab_size)
      .def_rw("context_length", &ModelConfig::context_length)
      .def_rw("hidden_size", &ModelConfig::hidden_size)
      .def_rw("intermediate_size", &ModelConfig::intermediate_size)
      .def_rw("num_layers", &ModelConfig::num_layers)
      .def_rw("num_heads", &ModelConfig::num_heads)
      .def_rw("num_kv_heads", &ModelConfig::num_kv_heads)
      .def_rw("head_dim", &ModelConfig::head_dim)
      .def_rw("norm_eps", &ModelConfig::norm_eps)
      .def_rw("norm_offset", &ModelConfig::norm_offset)
      .def_rw("qkv_bias", &ModelConfig::qkv_bias)
      .def_rw("qk_norm", &ModelConfig::qk_norm)
      .def_rw("post_norms", &ModelConfig::post_norms)
      .def_rw("activation", &ModelConfig::activation)
      .def_rw("embedding_scale", &ModelConfig::embedding_scale)
      .def_rw("query_scale", &ModelConfig::query_scale)
      .def_rw("rope_style", &ModelConfig::rope_style)
      .def_rw("rope_inv_freq", &ModelConfig::rope_inv_freq)
      .def_rw("layer_windows", &ModelConfig::layer_windows)
      .def_rw("cache_window", &ModelConfig::cache_window)
      .def_rw("windowed_rope_inv_freq", &ModelConfig::windowed_rope_inv_freq);

  nb::class_<Model>(m, "Model")
      .def(
          "__init__",
          [](Model* self, const ModelConfig& config, int threads, int64_t max_length, const std::string& isa) {
            new (self) Model(config, threads, max_length, isa);
          },
          "config"_a, nb::kw_only(), "threads"_a, "max_length"_a, "isa"_a)
      .def("add_tensor", &add_tensor, nb::kw_only(), "role"_a, "layer"_a.none(), "type"_a, "shape"_a, "data"_a,
           "pack_as"_a)
      .def("cut_head", &Model::cut_head, "token_ids"_a)
      .def("finish", &Model::finish, nb::call_guard<nb::gil_scoped_release>())
      .def("open", &Model::open)
      .def("close", &Model::close, "sequence_id"_a)
      .def("fork", &Model::fork, "sequence_id"_a)
      .def("length", &Model::length, "sequence_id"_a)
      .def("crop", &Model::crop, "sequence_id"_a, "length"_a)
      .def(
          "keep_path",
          [](Model& model, int64_t sequence, const std::vector<int64_t>& nodes) { model.keep_path(sequence, nodes); },
          "sequence_id"_a, "nodes"_a)
      .def("forward", &forward, "sequence_ids"_a, "token_ids"_a, "num_logits"_a, "parents"_a)
      .def_prop_ro("isa", [](const Model& model) { return std::string(isa_name(model.isa())); })
      .def_prop_ro("threads", &Model::num_threads)
      .def_prop_ro("max_length", &Model::max_length)
      .def_prop_ro("vocab_size", [](const Model& model) { return model.config().vocab_size; })
      .def_prop_ro("weight_bytes", &Model::weight_bytes)
      .def_prop_ro("cache_bytes", &Model::cache_bytes);

  m.attr("MAX_THREADS") = kMaxThreads;
  m.def("available_isas", &isa_names);
  bind_gguf(m);
  bind_sampling(m);
}

}  // namespace outrider
