// What temperature, min_p, top_k, top_p and typical_p leave of a row of logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampling/kernels.h"

namespace outrider {

struct Limits {
  double temperature;
  double min_p;      // 0 for none
  int64_t top_k;     // 0 for none
  double top_p;      // 1 for none
  double typical_p;  // 1 for none
};

// A row of logits with the largest value of every group of 64, and of all.
struct Row {
  std::span<const float> logits;
  std::vector<float> maxima;
  float top;  // NaN or infinite if there is nothing to draw from
  int64_t best_id;  // of the first NaN if there is any, else the lowest of the largest value
};

Row read_row(std::span<const float> logits, const SamplingKernels& kernels);

// The ids kept, ascending, with their weights; none at all for "every id".
struct Kept {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};

double inverse_temperature(const Limits& limits);

struct Sums {
  double weights;
  double moments;  // of weight * log weight, if wanted
};
Sums sum_everything(const Row& row, double inverse_temperature, const SamplingKernels& kernels, bool wants_moments);
std::optional<Kept> apply_limits(const Row& row, const Limits& limits, const SamplingKernels& kernels);

}  // namespace outrider
