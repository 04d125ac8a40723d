// Laws as Python sees them. src/outrider/_core.pyi has the types and the documentation.
#include "sampling/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "sampling/law.h"
#include "sampling/shape.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace outrider {
namespace {

template <class T> using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
constexpr int64_t kMaxVocabulary = INT32_MAX;

const SamplingKernels& kernels_for(const std::string& isa) {
  static const SamplingKernels& best = sampling_kernels(choose_isa(""));
  return isa.empty() ? best : sampling_kernels(choose_isa(isa));
}

std::span<const float> as_row(const Vector<float>& logits) {
  if (logits.size() < 1 || logits.size() > kMaxVocabulary)
    throw std::invalid_argument("a row of logits has from 1 to " + std::to_string(kMaxVocabulary) +
                                " of them, not " + std::to_string(logits.size()));
  return {logits.data(), logits.size()};
}

void check(bool ok, const char* name, double value, const char* limit) {
  if (!ok) throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + "; it must be " + limit);
}

std::pair<int64_t, float> argmax(const Vector<float>& logits, const std::string& isa) {
  const Row row = read_row(as_row(logits), kernels_for(isa));
  return {row.best_id, row.top};
}

bool has_token(const Vector<float>& logits) {
  const std::span<const float> row = as_row(logits);
  return std::any_of(row.begin(), row.end(), [](float x) { return x != -std::numeric_limits<float>::infinity(); });
}

void check_ids(const char* name, const Vector<int64_t>& ids, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids.data()[i] < 0 || ids.data()[i] >= vocab_size)
      throw nb::index_error((std::string(name) + " has " + std::to_string(ids.data()[i]) + "; the row has ids 0 to " +
                             std::to_string(vocab_size - 1)).c_str());
}

void check_lengths(const char* one, size_t length, const char* other, size_t expected) {
  if (length != expected)
    throw std::invalid_argument(std::string(one) + " has " + std::to_string(length) + " entries; " + other + " has " +
                                std::to_string(expected));
}

bool shape_row_in_place(const nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>& row,
                        const Vector<int64_t>& bias_ids, const Vector<float>& biases, const Vector<int64_t>& seen_ids,
                        const Vector<int64_t>& output_counts, const Vector<int64_t>& excluded_ids,
                        double repetition_penalty, double presence_penalty, double frequency_penalty,
                        const std::optional<Vector<uint8_t>>& allowed, const std::string& isa) {
  as_row(Vector<float>(row));
  const auto size = static_cast<int64_t>(row.size());
  check_ids("bias_ids", bias_ids, size);
  check_ids("seen_ids", seen_ids, size);
  check_ids("excluded_ids", excluded_ids, size);
  check_lengths("biases", biases.size(), "bias_ids", bias_ids.size());
  check_lengths("output_counts", output_counts.size(), "seen_ids", seen_ids.size());
  if (allowed) check_lengths("allowed", allowed->size(), "a bit for each token", (row.size() + 7) / 8);
  const auto span = [](const auto& vector) { return std::span(vector.data(), vector.size()); };
  return shape_row({row.data(), row.size()},
                   {span(bias_ids), span(biases), span(seen_ids), span(output_counts), repetition_penalty,
                    presence_penalty, frequency_penalty, allowed ? allowed->data() : nullptr, span(excluded_ids)},
                   kernels_for(isa));
}

Row finite_row(const Vector<float>& logits, const SamplingKernels& kernels) {
  Row row = read_row(as_row(logits), kernels);
  if (!std::isfinite(row.top))
    throw std::invalid_argument("the largest logit is " + std::to_string(row.top) + "; a law needs a finite one");
  return row;
}

std::pair<int64_t, double> likeliest(const Vector<float>& logits, const std::string& isa) {
  const SamplingKernels& kernels = kernels_for(isa);
  const Row row = finite_row(logits, kernels);
  return {row.best_id, 1 / sum_everything(row, 1.0, kernels, false).weights};
}

Law softmax(const Vector<float>& logits, double temperature, double min_p, int64_t top_k, double top_p,
            double typical_p, bool borrow, const std::string& isa) {
  check(temperature > 0 && std::isfinite(temperature), "temperature", temperature, "above 0 and finite");
  check(min_p >= 0 && min_p <= 1, "min_p", min_p, "from 0 to 1");
  check(top_k >= 0, "top_k", static_cast<double>(top_k), "at least 0");
  check(top_p > 0 && top_p <= 1, "top_p", top_p, "above 0 and at most 1");
  check(typical_p > 0 && typical_p <= 1, "typical_p", typical_p, "above 0 and at most 1");
  const SamplingKernels& kernels = kernels_for(isa);
  std::shared_ptr<const void> owner;
  if (borrow) owner = std::make_shared<const Vector<float>>(logits);
  return Law(finite_row(logits, kernels), {temperature, min_p, top_k, top_p, typical_p}, kernels, std::move(owner));
}

Law listed(const Vector<double>& weights, std::optional<Vector<int32_t>> ids, std::optional<int64_t> vocab_size,
           const std::string& isa) {
  const int64_t size = vocab_size.value_or(static_cast<int64_t>(weights.size()));
  if (size < 1 || size > kMaxVocabulary)
    throw std::invalid_argument("a vocabulary has from 1 to " + std::to_string(kMaxVocabulary) + " ids, not " +
                                std::to_string(size));
  std::shared_ptr<const std::vector<int32_t>> own;
  if (ids) own = std::make_shared<const std::vector<int32_t>>(ids->data(), ids->data() + ids->size());
  return Law({weights.data(), weights.data() + weights.size()}, std::move(own), size, kernels_for(isa));
}

int64_t checked_id(const Law& law, int64_t id) {
  if (id < 0 || id >= law.vocab_size())
    throw nb::index_error(("id " + std::to_string(id) + "; a law has ids 0 to " + std::to_string(law.vocab_size() - 1))
                              .c_str());
  return id;
}

nb::object to_array(const Law& law, const nb::object& dtype, const nb::object&) {
  auto values = std::make_unique<double[]>(static_cast<size_t>(law.vocab_size()));
  law.probs(values.get());
  double* const data = values.release();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<double*>(p); });
  const size_t shape[] = {static_cast<size_t>(law.vocab_size())};
  nb::object array = nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(data, 1, shape, owner));
  return dtype.is_none() ? array : array.attr("astype")(dtype);
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::class_<Law>(m, "Law")
      .def_static("softmax", &softmax, "logits"_a.noconvert(), nb::kw_only(), "temperature"_a, "min_p"_a = 0.0,
                  "top_k"_a = 0, "top_p"_a = 1.0, "typical_p"_a = 1.0, "borrow"_a = false, "isa"_a = "")
      .def_static("listed", &listed, "weights"_a.noconvert(), "ids"_a.noconvert().none() = nb::none(),
                  "vocab_size"_a.none() = nb::none(), nb::kw_only(), "isa"_a = "")
      .def_prop_ro("shape", [](const Law& law) { return nb::make_tuple(law.vocab_size()); })
      .def_prop_ro("dtype", [](const Law&) { return nb::module_::import_("numpy").attr("dtype")("float64"); })
      .def("__len__", &Law::vocab_size)
      .def("__getitem__", [](const Law& law, int64_t id) { return law.prob(checked_id(law, id)); })
      .def("__array__", &to_array, "dtype"_a.none() = nb::none(), "copy"_a.none() = nb::none())
      .def("sum", &Law::sum)
      .def("max", &Law::max)
      .def("draw",
           [](const Law& law, double uniform) {
             check(uniform >= 0 && uniform < 1, "uniform", uniform, "from 0 to below 1");
             return law.draw(uniform);
           },
           "uniform"_a)
      .def("race", &Law::race, "key"_a)
      .def("residual",
           [](const Law& law, const Law& drafted, double scale) {
             check(scale >= 0 && std::isfinite(scale), "scale", scale, "at least 0 and finite");
             return law.residual(drafted, scale);
           },
           "drafted"_a, "scale"_a = 1.0)
      .def("normalised", &Law::normalised)
      .def("without", [](const Law& law, int64_t id) { return law.without(checked_id(law, id)); }, "token_id"_a)
      .def("top", &Law::top, "count"_a);
  m.def("likeliest", &likeliest, "logits"_a.noconvert(), nb::kw_only(), "isa"_a = "");
  m.def("shape_row", &shape_row_in_place, "row"_a.noconvert(), nb::kw_only(), "bias_ids"_a.noconvert(),
        "biases"_a.noconvert(), "seen_ids"_a.noconvert(), "output_counts"_a.noconvert(), "excluded_ids"_a.noconvert(),
        "repetition_penalty"_a = 1.0, "presence_penalty"_a = 0.0, "frequency_penalty"_a = 0.0,
        "allowed"_a.noconvert().none() = nb::none(), "isa"_a = "");
  m.def("has_token", &has_token, "logits"_a.noconvert());
  m.def("argmax", &argmax, "logits"_a.noconvert(), nb::kw_only(), "isa"_a = "");
}

}  // namespace outrider
