#include "sampling/shape.h"

#include <cmath>
#include <limits>

#include "sampling/limits.h"

namespace outrider {
namespace {

float penalised(float value, int64_t count, const Shaping& shaping) {
  double logit = value;
  logit = logit > 0 ? logit / shaping.repetition_penalty : logit * shaping.repetition_penalty;
  logit -= shaping.frequency_penalty * static_cast<double>(count);
  logit -= shaping.presence_penalty * (count > 0 ? 1.0 : 0.0);
  return static_cast<float>(logit);
}

}  // namespace

bool shape_row(std::span<float> row, const Shaping& shaping, const SamplingKernels& kernels) {
  if (!std::isfinite(read_row(row, kernels).top)) return false;
  for (size_t i = 0; i < shaping.bias_ids.size(); ++i) row[static_cast<size_t>(shaping.bias_ids[i])] += shaping.biases[i];
  for (size_t i = 0; i < shaping.seen_ids.size(); ++i) {
    float& value = row[static_cast<size_t>(shaping.seen_ids[i])];
    value = penalised(value, shaping.output_counts[i], shaping);
  }
  if (shaping.allowed != nullptr) kernels.mask(row.data(), std::ssize(row), shaping.allowed);
  for (const int64_t id : shaping.excluded_ids) row[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  return true;
}

}  // namespace outrider
