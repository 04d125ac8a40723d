// A decoder, described by data. No name of an architecture means anything here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outrider {

struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double norm_eps = 0;
  double norm_offset = 0;                     // what is added to the weights of every norm
  bool qkv_bias = false;
  bool qk_norm = false;                       // each head of q and k is normalised before it is rotated
  bool post_norms = false;                    // the outputs of attention and feed-forward are normalised too
  std::string activation;                     // of the gate: "silu" or "gelu_tanh"
  double embedding_scale = 0;
  double query_scale = 0;
  std::string rope_style;                     // "half": i with i + rope_dim / 2; "interleaved": 2 i with 2 i + 1
  std::vector<double> rope_inv_freq;          // [rope_dim / 2]
  std::vector<int64_t> layer_windows;         // [num_layers] or empty; how many positions a query sees, 0: all
  std::vector<double> windowed_rope_inv_freq; // of the layers with a window; empty: as the others

  // 0, or for a draft: no layer sees more than the first 64 positions and this many last ones; the cache forgets the
  // others.
  int64_t cache_window = 0;

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t window(int64_t layer) const { return layer_windows.empty() ? 0 : layer_windows[layer]; }
};

// Throws std::invalid_argument that names the value, the limit and the fix. After this no product of two sizes, nor
// of a size with the number of layers, overflows.
void check(const ModelConfig& config);
// Throws std::invalid_argument unless minimum <= value <= maximum.
void check_range(const char* name, int64_t value, int64_t minimum, int64_t maximum, const char* fix);

}  // namespace outrider
