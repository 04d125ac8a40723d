// A decoder of the Llama and Qwen2 families, described by data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outrider {

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2"
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double norm_eps = 0;
  std::string rope_style;              // "half": i with i + rope_dim / 2; "interleaved": 2 i with 2 i + 1
  std::vector<double> rope_inv_freq;   // [rope_dim / 2]
  std::vector<int64_t> layer_windows;  // [num_layers] positions that a token sees, 0 for all; or empty

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  bool needs_qkv_bias() const { return architecture == "qwen2"; }
};

// Throws std::invalid_argument that names the value, the limit and the fix. After this no product of two sizes, nor
// of a size with the number of layers, overflows.
void check(const ModelConfig& config);
// Throws std::invalid_argument unless minimum <= value <= maximum.
void check_range(const char* name, int64_t value, int64_t minimum, int64_t maximum, const char* fix);

}  // namespace outrider
