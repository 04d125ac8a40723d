// What the executor makes of any description, tensors and calls: a refusal that changes nothing, or the right answer.
//
// The input is a small program: a description of a model, then calls. Numbers are mostly small, so that many calls are
// in order, and sometimes any 64 bits. A shadow of every sequence says what its length must be, and now and then its
// logits are compared with those of the same tokens in one pass from the start.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/model.h"

namespace {

using namespace outrider;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return at_ == size_; }
  uint8_t byte() { return empty() ? 0 : data_[at_++]; }
  // From 0 to 245, or what the next eight bytes say.
  int64_t number() {
    const uint8_t first = byte();
    if (first < 246) return first;
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return static_cast<int64_t>(value);
  }
  // One of `count` choices, or any number.
  int64_t near(int64_t count) {
    const int64_t value = number();
    return value < 0 || value >= 246 ? value : value % count;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

ModelConfig config_from(Input& in) {
  const auto one_of = [&](auto first, auto second) { return in.byte() % 2 ? second : first; };
  ModelConfig config{.vocab_size = 11,
                     .context_length = 300,
                     .hidden_size = 32,
                     .intermediate_size = 32,
                     .num_layers = one_of(1, 2),
                     .num_heads = 2,
                     .num_kv_heads = one_of(1, 2),
                     .head_dim = 16,
                     .norm_eps = 1e-5,
                     .norm_offset = one_of(0.0, 1.0),
                     .qkv_bias = one_of(false, true),
                     .qk_norm = one_of(false, true),
                     .post_norms = one_of(false, true),
                     .activation = one_of("silu", "gelu_tanh"),
                     .embedding_scale = one_of(1.0, 5.5),
                     .query_scale = 0.25,
                     .rope_style = one_of("half", "interleaved"),
                     .rope_inv_freq = {1.0, 0.1, 0.01}};
  for (int64_t layer = 0; layer < config.num_layers && in.byte() % 2; ++layer)
    config.layer_windows.push_back(in.near(80));
  if (in.byte() % 2) config.windowed_rope_inv_freq = {0.5, 0.05, 0.005};
  for (int64_t* field : {&config.vocab_size, &config.context_length, &config.hidden_size, &config.intermediate_size,
                         &config.num_layers, &config.num_heads, &config.num_kv_heads, &config.head_dim})
    if (in.byte() % 16 == 15) *field = in.number();
  return config;
}

// A tensor of the right shape with bytes of the input, or of another shape, layer, role or size.
void add_tensor(Model& model, Input& in, std::string role, int64_t layer, std::vector<int64_t> shape) {
  static const char* const types[] = {"F32", "F16", "BF16", "Q4_0", "Q8_0", "Q6_K"};
  const WeightTypeInfo* type = find_weight_type(std::string_view(types[in.byte() % 4 ? 0 : in.byte() % 6]));
  const uint8_t kind = in.byte();
  if (kind == 250) shape[0] = in.number();
  if (kind == 251) shape.push_back(in.number());
  if (kind == 252) layer = in.number();
  if (kind == 253) role = "attn_q";
  if (kind == 254) return;
  int64_t elements = 1;
  for (const int64_t size : shape) elements = std::clamp<int64_t>(size, 0, 1 << 12) * elements % (1 << 16);
  size_t bytes = static_cast<size_t>((elements + type->block_elements - 1) / type->block_elements * type->block_bytes);
  if (kind == 255) bytes = in.byte();
  const auto data = std::make_shared<std::vector<uint8_t>>(bytes);
  const uint8_t seed = in.byte();
  for (size_t i = 0; i < bytes; ++i) (*data)[i] = static_cast<uint8_t>((i * 37 + seed) * (i + 3) >> 2);
  if (type->type == WeightType::kF32)
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
      const float value = static_cast<float>((*data)[i]) / 256.0f - 0.5f;
      std::memcpy(data->data() + i, &value, 4);
    }
  const std::optional<int64_t> of_layer = layer < 0 ? std::nullopt : std::optional<int64_t>(layer);
  model.add({std::move(role), of_layer, type->type, std::move(shape), *data, data},
            static_cast<PackAs>(in.byte() % 4 ? 0 : in.byte() % 3));
}

void add_tensors(Model& model, Input& in) {
  const ModelConfig& c = model.config();
  if (c.num_layers > 4 || c.vocab_size > 4096 || c.hidden_size > 256 || c.intermediate_size > 256 ||
      c.q_size() > 512)
    throw std::invalid_argument("a model of this size takes the fuzzer too long");
  const int64_t h = c.hidden_size, q = c.q_size(), kv = c.kv_size(), inner = c.intermediate_size;
  add_tensor(model, in, "embedding", -1, {c.vocab_size, h});
  add_tensor(model, in, "output_norm", -1, {h});
  for (int64_t l = 0; l < c.num_layers; ++l) {
    std::vector<std::pair<const char*, std::vector<int64_t>>> tensors{
        {"attn_norm", {h}}, {"attn_q", {q, h}},   {"attn_k", {kv, h}},       {"attn_v", {kv, h}},     {"attn_output", {h, q}},
        {"ffn_norm", {h}},  {"ffn_up", {inner, h}}, {"ffn_gate", {inner, h}}, {"ffn_down", {h, inner}}};
    if (c.qkv_bias) tensors.insert(tensors.end(), {{"attn_q_bias", {q}}, {"attn_k_bias", {kv}}, {"attn_v_bias", {kv}}});
    if (c.qk_norm) tensors.insert(tensors.end(), {{"attn_q_norm", {c.head_dim}}, {"attn_k_norm", {c.head_dim}}});
    if (c.post_norms) tensors.insert(tensors.end(), {{"attn_post_norm", {h}}, {"ffn_post_norm", {h}}});
    for (const auto& [role, shape] : tensors) add_tensor(model, in, role, l, shape);
  }
  model.finish();
}

using Tokens = std::vector<int64_t>;

// What a sequence must hold: a chain, and beyond it perhaps a tree.
struct Shadow {
  Tokens chain, tree, parents;
  int64_t length() const { return static_cast<int64_t>(chain.size() + tree.size()); }

  // The chain that leads to the last node, or the chain.
  Tokens path() const {
    Tokens reversed;
    for (int64_t node = static_cast<int64_t>(tree.size()) - 1; node >= 0; node = parents.at(static_cast<size_t>(node)))
      reversed.push_back(tree[static_cast<size_t>(node)]);
    Tokens tokens = chain;
    tokens.insert(tokens.end(), reversed.rbegin(), reversed.rend());
    return tokens;
  }
};

// The same tokens from the start, in one pass, must give the same bits.
void check_logits(Model& model, const Tokens& tokens, const Logits& logits) {
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  const float* end = logits.values->as<float>() + static_cast<size_t>(logits.num_rows) * vocab;
  const std::vector<float> row(end - vocab, end);
  const int64_t again = model.open();
  const Request request{again, tokens, 1, std::nullopt};
  const float* expected = model.forward({&request, 1}).values->as<float>();
  for (size_t i = 0; i < vocab; ++i) {
    const bool both_nan = row[i] != row[i] && expected[i] != expected[i];
    require(both_nan || std::memcmp(&row[i], &expected[i], sizeof(float)) == 0, "the logits differ");
  }
  model.close(again);
}

using Shadows = std::map<int64_t, Shadow>;

void open(Model& model, Shadows& shadows, const Shadow& shadow, int64_t id) {
  require(shadows.emplace(id, shadow).second, "a sequence was opened twice");
  if (shadows.size() > 8) {
    model.close(shadows.begin()->first);
    shadows.erase(shadows.begin());
  }
}

void crop(Model& model, Input& in, Shadows& shadows, int64_t id) {
  const int64_t length = in.number();
  model.crop(id, length);
  Shadow& shadow = shadows.at(id);
  require(length >= 0 && length <= static_cast<int64_t>(shadow.chain.size()), "a crop beyond the chain was taken");
  shadow = {Tokens(shadow.chain.begin(), shadow.chain.begin() + length), {}, {}};
}

void keep_path(Model& model, Input& in, Shadows& shadows, int64_t id) {
  // A few nodes, or as long a chain as the trees of forward() may hold.
  const uint8_t count = in.byte();
  Tokens nodes(count < 128 ? count % 5 : 3 * (count - 128));
  for (int64_t& node : nodes) node = count < 128 ? in.near(8) : &node - nodes.data();
  model.keep_path(id, nodes);
  Shadow& shadow = shadows.at(id);
  int64_t parent = -1;
  for (const int64_t node : nodes) {
    require(shadow.parents.at(static_cast<size_t>(node)) == parent, "no path was kept");
    shadow.chain.push_back(shadow.tree.at(static_cast<size_t>(node)));
    parent = node;
  }
  shadow.tree.clear();
  shadow.parents.clear();
}

void forward(Model& model, Input& in, Shadows& shadows, int64_t last_id) {
  std::vector<Request> requests;
  for (int i = in.byte() % 3; i >= 0; --i) {
    const uint8_t count = in.byte();
    Request request{in.near(last_id + 2), Tokens(count < 240 ? count % 80 : 280), 0, std::nullopt};
    for (int64_t& token : request.tokens) token = in.near(model.config().vocab_size);
    request.num_logits = in.near(static_cast<int64_t>(request.tokens.size()) + 1);
    const uint8_t shape = in.byte() % 4;
    if (shape > 0) {
      request.parents = Tokens(request.tokens.size());
      for (size_t node = 0; node < request.tokens.size(); ++node)
        (*request.parents)[node] = (shape == 1 ? static_cast<int64_t>(node) : in.near(static_cast<int64_t>(node) + 1)) - 1;
    }
    requests.push_back(std::move(request));
  }
  const Logits logits = model.forward(requests);
  int64_t wanted = 0;
  for (const Request& request : requests) {
    Shadow& shadow = shadows.at(request.sequence);
    require(shadow.parents.empty(), "a pass went over a tree");
    Tokens& tokens = request.parents ? shadow.tree : shadow.chain;
    tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
    if (request.parents) shadow.parents = *request.parents;
    wanted += request.num_logits;
  }
  require(logits.num_rows == wanted, "there are not as many rows of logits as were asked for");
  const Request& last = requests.back();
  if (last.num_logits > 0) check_logits(model, shadows.at(last.sequence).path(), logits);
}

void call(Model& model, Input& in, Shadows& shadows, int64_t& last_id) {
  const uint8_t what = in.byte() % 8;
  if (what == 0) return open(model, shadows, {}, last_id = model.open());
  if (what >= 5) return forward(model, in, shadows, last_id);
  const int64_t id = in.near(last_id + 2);
  if (what == 1) {
    const int64_t forked = model.fork(id);
    require(shadows.at(id).parents.empty(), "a tree was forked");
    open(model, shadows, shadows.at(id), last_id = forked);
  } else if (what == 2) {
    model.close(id);
    require(shadows.erase(id) == 1, "an unknown sequence was closed");
  } else if (what == 3) {
    crop(model, in, shadows, id);
  } else {
    keep_path(model, in, shadows, id);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  try {
    Model model(config_from(in), 1 + in.byte() % 2, in.byte() % 8 ? 280 : in.number(), "");
    add_tensors(model, in);
    Shadows shadows;
    int64_t last_id = 0;
    for (int calls = 0; calls < 40 && !in.empty(); ++calls) {
      try {
        call(model, in, shadows, last_id);
      } catch (const std::invalid_argument&) {  // refused, and so nothing may have changed
      }
      for (const auto& [id, shadow] : shadows)
        require(model.length(id) == shadow.length(), "a sequence has another length");
    }
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
