#include "sampling/shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/limits.h"

namespace outrider {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float penalised(float value, int64_t count, const Shaping& shaping) {
  double logit = value;
  logit = logit > 0 ? logit / shaping.repetition_penalty : logit * shaping.repetition_penalty;
  logit -= shaping.frequency_penalty * static_cast<double>(count);
  logit -= shaping.presence_penalty * (count > 0 ? 1.0 : 0.0);
  return static_cast<float>(logit);
}

// Masks a row block by block, each while it is in the cache; stops, with false, before a block that has what is no number.
bool mask_row(std::span<float> row, const uint8_t* allowed, const SamplingKernels& kernels) {
  float maxima[kBlock / kGroup], top = -kInf;
  const int64_t size = std::ssize(row);
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    if (!kernels.group_maxima(row.data() + begin, count, maxima)) return false;
    const float most = *std::max_element(maxima, maxima + (count + kGroup - 1) / kGroup);
    if (most > -kInf) kernels.mask(row.data() + begin, count, allowed + begin / 8);
    top = std::max(top, most);
  }
  return top > -kInf;
}

}  // namespace

bool shape_row(std::span<float> row, const Shaping& shaping, const SamplingKernels& kernels) {
  // A mask comes first, since nothing else raises minus infinity.
  if (shaping.allowed == nullptr ? !std::isfinite(read_row(row, kernels).top) : !mask_row(row, shaping.allowed, kernels))
    return false;
  for (size_t i = 0; i < shaping.bias_ids.size(); ++i) row[static_cast<size_t>(shaping.bias_ids[i])] += shaping.biases[i];
  for (size_t i = 0; i < shaping.seen_ids.size(); ++i) {
    float& value = row[static_cast<size_t>(shaping.seen_ids[i])];
    value = penalised(value, shaping.output_counts[i], shaping);
  }
  for (const int64_t id : shaping.excluded_ids) row[static_cast<size_t>(id)] = -kInf;
  return true;
}

}  // namespace outrider
