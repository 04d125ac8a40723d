#include "model/config.h"

#include <cmath>
#include <stdexcept>

namespace outrider {
namespace {

constexpr const char* kFix = "the model's description is damaged, or it is no model that this version can run";

void check_rope(const ModelConfig& config) {
  if (config.rope_style != "half" && config.rope_style != "interleaved")
    throw std::invalid_argument("rope_style is '" + config.rope_style + "'; use 'half' or 'interleaved'");
  check_range("twice the number of rope_inv_freq", 2 * static_cast<int64_t>(config.rope_inv_freq.size()), 2,
              config.head_dim, "there is one frequency for each pair of a head's elements that are rotated");
  for (const double frequency : config.rope_inv_freq) {
    if (!std::isfinite(frequency) || frequency < 0 || frequency > 1e6)
      throw std::invalid_argument("rope_inv_freq holds " + std::to_string(frequency) + ", outside 0..1000000; " + kFix);
  }
}

void check_windows(const ModelConfig& config) {
  if (!config.layer_windows.empty())
    check_range("the number of layer_windows", static_cast<int64_t>(config.layer_windows.size()), config.num_layers,
                config.num_layers, "give one for each layer, or none at all");
  for (const int64_t window : config.layer_windows) check_range("a layer's window", window, 0, 0, kFix);
}

}  // namespace

void check_range(const char* name, int64_t value, int64_t minimum, int64_t maximum, const char* fix) {
  if (value >= minimum && value <= maximum) return;
  throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", outside " +
                              std::to_string(minimum) + ".." + std::to_string(maximum) + "; " + fix);
}

void check(const ModelConfig& config) {
  if (config.architecture != "llama" && config.architecture != "qwen2")
    throw std::invalid_argument("architecture is '" + config.architecture + "'; the core runs 'llama' and 'qwen2'");
  check_range("vocab_size", config.vocab_size, 1, 1 << 22, kFix);
  check_range("context_length", config.context_length, 1, 1 << 24, kFix);
  check_range("hidden_size", config.hidden_size, 1, 1 << 16, kFix);
  check_range("intermediate_size", config.intermediate_size, 1, 1 << 20, kFix);
  check_range("num_layers", config.num_layers, 1, 1024, kFix);
  check_range("num_heads", config.num_heads, 1, 1024, kFix);
  check_range("num_kv_heads", config.num_kv_heads, 1, config.num_heads, kFix);
  check_range("head_dim", config.head_dim, 2, 1024, kFix);
  if (config.num_heads % config.num_kv_heads != 0)
    throw std::invalid_argument("num_heads is " + std::to_string(config.num_heads) + ", no multiple of num_kv_heads " +
                                std::to_string(config.num_kv_heads) + "; " + kFix);
  if (config.head_dim % 2 != 0)
    throw std::invalid_argument("head_dim is " + std::to_string(config.head_dim) + ", not even; " + kFix);
  if (!std::isfinite(config.norm_eps) || config.norm_eps < 0 || config.norm_eps > 1)
    throw std::invalid_argument("norm_eps is " + std::to_string(config.norm_eps) + ", outside 0..1; " + kFix);
  check_rope(config);
  check_windows(config);
}

}  // namespace outrider
