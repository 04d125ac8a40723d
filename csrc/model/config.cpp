#include "model/config.h"

#include <cmath>
#include <stdexcept>

#include "ops/ops.h"

namespace outrider {
namespace {

constexpr const char* kFix = "the model's description is damaged, or it is no model that this version can run";

void check_frequencies(const char* name, const std::vector<double>& frequencies) {
  for (const double frequency : frequencies) {
    if (!std::isfinite(frequency) || frequency < 0 || frequency > 1e6)
      throw std::invalid_argument(std::string(name) + " holds " + std::to_string(frequency) +
                                  ", outside 0..1000000; " + kFix);
  }
}

void check_rope(const ModelConfig& config) {
  if (config.rope_style != "half" && config.rope_style != "interleaved")
    throw std::invalid_argument("rope_style is '" + config.rope_style + "'; use 'half' or 'interleaved'");
  check_range("twice the number of rope_inv_freq", 2 * static_cast<int64_t>(config.rope_inv_freq.size()), 2,
              config.head_dim, "there is one frequency for each pair of a head's elements that are rotated");
  check_frequencies("rope_inv_freq", config.rope_inv_freq);
  if (config.windowed_rope_inv_freq.empty()) return;
  const auto count = static_cast<int64_t>(config.rope_inv_freq.size());
  check_range("the number of windowed_rope_inv_freq", static_cast<int64_t>(config.windowed_rope_inv_freq.size()), count,
              count, "there must be as many as rope_inv_freq, or none");
  check_frequencies("windowed_rope_inv_freq", config.windowed_rope_inv_freq);
}

void check_windows(const ModelConfig& config) {
  if (config.layer_windows.empty()) return;
  check_range("the number of layer_windows", static_cast<int64_t>(config.layer_windows.size()), config.num_layers,
              config.num_layers, "there must be one for each layer, or none");
  for (const int64_t window : config.layer_windows) check_range("one of layer_windows", window, 0, 1 << 24, kFix);
}

// The largest scale is beyond every model's, and too small for a float to overflow in a sound one.
void check_scale(const char* name, double scale) {
  if (scale > 0 && scale <= 1e6) return;
  throw std::invalid_argument(std::string(name) + " is " + std::to_string(scale) + ", not above 0 and at most 1000000; " +
                              kFix);
}

}  // namespace

void check_range(const char* name, int64_t value, int64_t minimum, int64_t maximum, const char* fix) {
  if (value >= minimum && value <= maximum) return;
  throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", outside " +
                              std::to_string(minimum) + ".." + std::to_string(maximum) + "; " + fix);
}

void check(const ModelConfig& config) {
  check_range("vocab_size", config.vocab_size, 1, 1 << 22, kFix);
  check_range("context_length", config.context_length, 1, 1 << 24, kFix);
  check_range("hidden_size", config.hidden_size, 1, 1 << 16, kFix);
  check_range("intermediate_size", config.intermediate_size, 1, 1 << 20, kFix);
  check_range("num_layers", config.num_layers, 1, 1024, kFix);
  check_range("num_heads", config.num_heads, 1, 1024, kFix);
  check_range("num_kv_heads", config.num_kv_heads, 1, config.num_heads, kFix);
  check_range("head_dim", config.head_dim, 2, kMaxHeadDim, kFix);
  if (config.num_heads % config.num_kv_heads != 0)
    throw std::invalid_argument("num_heads is " + std::to_string(config.num_heads) + ", no multiple of num_kv_heads " +
                                std::to_string(config.num_kv_heads) + "; " + kFix);
  if (config.head_dim % 2 != 0)
    throw std::invalid_argument("head_dim is " + std::to_string(config.head_dim) + ", not even; " + kFix);
  if (!std::isfinite(config.norm_eps) || config.norm_eps < 0 || config.norm_eps > 1)
    throw std::invalid_argument("norm_eps is " + std::to_string(config.norm_eps) + ", outside 0..1; " + kFix);
  if (!(config.norm_offset >= 0 && config.norm_offset <= 1))
    throw std::invalid_argument("norm_offset is " + std::to_string(config.norm_offset) + ", outside 0..1; " + kFix);
  if (config.activation != "silu" && config.activation != "gelu_tanh")
    throw std::invalid_argument("activation is '" + config.activation + "'; use 'silu' or 'gelu_tanh'");
  check_scale("embedding_scale", config.embedding_scale);
  check_scale("query_scale", config.query_scale);
  check_rope(config);
  check_windows(config);
  if (config.cache_window != 0)
    check_range("cache_window", config.cache_window, 128, 1 << 24, "give 0 for a cache that forgets nothing");
}

}  // namespace outrider
