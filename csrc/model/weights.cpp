#include "model/weights.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "ops/ops.h"

namespace outrider {
namespace {

using Size = int64_t (*)(const ModelConfig&);

int64_t hidden(const ModelConfig& c) { return c.hidden_size; }
int64_t inner(const ModelConfig& c) { return c.intermediate_size; }
int64_t q_size(const ModelConfig& c) { return c.q_size(); }
int64_t kv_size(const ModelConfig& c) { return c.kv_size(); }
int64_t head(const ModelConfig& c) { return c.head_dim; }

struct VectorRole {
  std::string_view name;
  std::vector<float> LayerWeights::* member;
  Size size;
  bool is_norm = false;
  bool is_rotated = false;
  bool ModelConfig::* wanted = nullptr;  // which models have it; all by default
};
struct MatrixRole {
  std::string_view name;
  PackedMatrix LayerWeights::* member;
  Size num_out, num_in;
  bool is_rotated = false;
};

const std::array<VectorRole, 9> kVectorRoles{{
    {"attn_norm", &LayerWeights::attn_norm, hidden, true},
    {"attn_q_bias", &LayerWeights::attn_q_bias, q_size, false, true, &ModelConfig::qkv_bias},
    {"attn_k_bias", &LayerWeights::attn_k_bias, kv_size, false, true, &ModelConfig::qkv_bias},
    {"attn_v_bias", &LayerWeights::attn_v_bias, kv_size, false, false, &ModelConfig::qkv_bias},
    {"attn_q_norm", &LayerWeights::attn_q_norm, head, true, true, &ModelConfig::qk_norm},
    {"attn_k_norm", &LayerWeights::attn_k_norm, head, true, true, &ModelConfig::qk_norm},
    {"attn_post_norm", &LayerWeights::attn_post_norm, hidden, true, false, &ModelConfig::post_norms},
    {"ffn_norm", &LayerWeights::ffn_norm, hidden, true},
    {"ffn_post_norm", &LayerWeights::ffn_post_norm, hidden, true, false, &ModelConfig::post_norms},
}};
const std::array<MatrixRole, 7> kMatrixRoles{{
    {"attn_q", &LayerWeights::attn_q, q_size, hidden, true},
    {"attn_k", &LayerWeights::attn_k, kv_size, hidden, true},
    {"attn_v", &LayerWeights::attn_v, kv_size, hidden},
    {"attn_output", &LayerWeights::attn_output, hidden, q_size},
    {"ffn_gate", &LayerWeights::ffn_gate, inner, hidden},
    {"ffn_up", &LayerWeights::ffn_up, inner, hidden},
    {"ffn_down", &LayerWeights::ffn_down, hidden, inner},
}};

bool has(const ModelConfig& config, const VectorRole& role) {
  return role.wanted == nullptr || config.*role.wanted;
}

std::string describe(const Tensor& tensor) {
  return "tensor " + tensor.role + (tensor.layer ? " of layer " + std::to_string(*tensor.layer) : "");
}

[[noreturn]] void reject(const Tensor& tensor, const std::string& problem) {
  throw std::invalid_argument(describe(tensor) + " " + problem + "; the model file is damaged or of another model");
}

std::string in_brackets(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

// Sizes are at most 2^22 by 2^20 (config.cpp), and a value takes at most 4 bytes, so no product overflows.
void check_shape(const Tensor& tensor, const std::vector<int64_t>& shape) {
  if (tensor.shape != shape)
    reject(tensor, "has shape " + in_brackets(tensor.shape) + ", the model's description asks for " +
                       in_brackets(shape));
  const int64_t bytes = row_bytes(tensor.type, shape.back()) * (shape.size() == 2 ? shape[0] : 1);
  if (tensor.data.size() != static_cast<size_t>(bytes))
    reject(tensor, "has " + std::to_string(tensor.data.size()) + " bytes, its shape and type ask for " +
                       std::to_string(bytes));
}

int64_t bytes_of(const std::vector<float>& vector) { return static_cast<int64_t>(vector.size() * sizeof(float)); }

}  // namespace

Weights::Weights(const ModelConfig& config) : layers(config.num_layers), config_(config) {}

void Weights::add(const Tensor& tensor, PackAs pack_as, ThreadPool& pool) {
  const int64_t h = config_.hidden_size, vocab = config_.vocab_size;
  if (tensor.role == "embedding" || tensor.role == "output" || tensor.role == "output_norm") {
    if (tensor.layer) reject(tensor, "belongs to no layer");
    check_shape(tensor, tensor.role == "output_norm" ? std::vector{h} : std::vector{vocab, h});
    if (tensor.role == "output_norm") return add_vector(output_norm, tensor, false, config_.norm_offset);
    if (tensor.role == "output") return add_output(tensor, pack_as, pool);
    if (!embedding_.data.empty()) reject(tensor, "is given twice");
    embedding_ = tensor;
    embedding_pack_as_ = pack_as;
    return;
  }
  const auto layer = [&]() -> LayerWeights& {
    if (!tensor.layer || *tensor.layer < 0 || *tensor.layer >= config_.num_layers)
      reject(tensor, "needs a layer in 0.." + std::to_string(config_.num_layers - 1));
    return layers[*tensor.layer];
  };
  for (const VectorRole& role : kVectorRoles) {
    if (role.name != tensor.role) continue;
    LayerWeights& weights = layer();
    if (!has(config_, role)) reject(tensor, "has no place in this model, by its description");
    check_shape(tensor, {role.size(config_)});
    return add_vector(weights.*role.member, tensor, role.is_rotated, role.is_norm ? config_.norm_offset : 0);
  }
  for (const MatrixRole& role : kMatrixRoles) {
    if (role.name != tensor.role) continue;
    LayerWeights& weights = layer();
    check_shape(tensor, {role.num_out(config_), role.num_in(config_)});
    return add_matrix(weights.*role.member, tensor, pack_as, role.is_rotated, pool);
  }
  reject(tensor, "has a role that the core does not know");
}

void Weights::add_vector(std::vector<float>& vector, const Tensor& tensor, bool reorder, double offset) {
  if (!vector.empty()) reject(tensor, "is given twice");
  const int64_t n = tensor.shape[0];
  std::vector<float> values(padded(n));
  dequantize_row(tensor.type, tensor.data.data(), n, values.data());
  if (reorder && config_.rope_style == "interleaved") {
    Tensor floats = tensor;
    floats.data = {reinterpret_cast<const uint8_t*>(values.data()), n * sizeof(float)};
    const std::vector<uint8_t> bytes = reordered(floats, sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  for (int64_t i = 0; i < n; ++i) values[i] += static_cast<float>(offset);
  vector = std::move(values);
}

void Weights::add_matrix(PackedMatrix& matrix, const Tensor& tensor, PackAs pack_as, bool reorder, ThreadPool& pool) {
  if (matrix.num_out != 0) reject(tensor, "is given twice");
  const int64_t num_out = tensor.shape[0], num_in = tensor.shape[1];
  if (reorder && config_.rope_style == "interleaved") {
    const std::vector<uint8_t> bytes = reordered(tensor, row_bytes(tensor.type, num_in));
    matrix = pack(tensor.type, bytes, num_out, num_in, pack_as, pool);
  } else {
    matrix = pack(tensor.type, tensor.data, num_out, num_in, pack_as, pool);
  }
}

void Weights::cut_head(std::vector<int64_t> token_ids) {
  if (output.num_out != 0 || !head_tokens.empty())
    throw std::invalid_argument("the head is there already; cut it once, and before the output matrix is added");
  if (token_ids.empty()) throw std::invalid_argument("a head cannot be cut to no tokens; keep one at least");
  for (size_t i = 0; i < token_ids.size(); ++i) {
    check_range("a token id", token_ids[i], 0, config_.vocab_size - 1, "use the model's own tokenizer");
    if (i > 0 && token_ids[i - 1] >= token_ids[i])
      throw std::invalid_argument("token " + std::to_string(token_ids[i]) + " of the head follows " +
                                  std::to_string(token_ids[i - 1]) + "; give each id once, in ascending order");
  }
  head_tokens = std::move(token_ids);
}

void Weights::add_output(const Tensor& tensor, PackAs pack_as, ThreadPool& pool) {
  if (head_tokens.empty()) return add_matrix(output, tensor, pack_as, false, pool);
  if (output.num_out != 0) reject(tensor, "is given twice");
  const int64_t bytes = row_bytes(tensor.type, config_.hidden_size);
  std::vector<uint8_t> kept(head_tokens.size() * bytes);
  for (size_t i = 0; i < head_tokens.size(); ++i)
    std::memcpy(kept.data() + i * bytes, tensor.data.data() + head_tokens[i] * bytes, bytes);
  output = pack(tensor.type, kept, static_cast<int64_t>(head_tokens.size()), config_.hidden_size, pack_as, pool);
}

// Of every head: first the even ones of the items that are rotated, then the odd ones, then the rest.
std::vector<uint8_t> Weights::reordered(const Tensor& tensor, int64_t item_bytes) const {
  const int64_t head_dim = config_.head_dim, half = static_cast<int64_t>(config_.rope_inv_freq.size());
  std::vector<uint8_t> bytes(tensor.data.size());
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    const int64_t head = i / head_dim, in_head = i % head_dim;
    int64_t source = in_head;
    if (in_head < half) source = 2 * in_head;
    else if (in_head < 2 * half) source = 2 * (in_head - half) + 1;
    const uint8_t* item = tensor.data.data() + (head * head_dim + source) * item_bytes;
    std::memcpy(bytes.data() + i * item_bytes, item, item_bytes);
  }
  return bytes;
}

void Weights::finish(ThreadPool& pool) {
  const auto require = [](bool given, std::string_view role, std::optional<int64_t> layer) {
    if (!given) reject(Tensor{std::string(role), layer, WeightType::kF32, {}, {}, nullptr}, "is missing");
  };
  require(!embedding_.data.empty(), "embedding", std::nullopt);
  require(!output_norm.empty(), "output_norm", std::nullopt);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    for (const VectorRole& role : kVectorRoles)
      require(!(layers[i].*role.member).empty() || !has(config_, role), role.name, i);
    for (const MatrixRole& role : kMatrixRoles) require((layers[i].*role.member).num_out != 0, role.name, i);
  }
  if (output.num_out == 0) add_output(embedding_, embedding_pack_as_, pool);
}

void Weights::embed(int64_t token, float* row) const {
  const int64_t bytes = row_bytes(embedding_.type, config_.hidden_size);
  dequantize_row(embedding_.type, embedding_.data.data() + token * bytes, config_.hidden_size, row);
}

int64_t Weights::bytes() const {
  int64_t bytes = output.bytes_per_pass() + bytes_of(output_norm);
  for (const LayerWeights& layer : layers) {
    for (const VectorRole& role : kVectorRoles) bytes += bytes_of(layer.*role.member);
    for (const MatrixRole& role : kMatrixRoles) bytes += (layer.*role.member).bytes_per_pass();
  }
  return bytes;
}

}  // namespace outrider
