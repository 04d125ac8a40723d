#include "sampling/limits.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "sampling/select.h"

namespace outrider {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// How far below the top, in units of the temperature, a nucleus is looked for first.
constexpr double kFirstLook = 8;

int64_t find_best(std::span<const float> logits, const Row& row) {
  for (size_t group = 0; group < row.maxima.size(); ++group) {
    if (row.maxima[group] != row.top) continue;
    const auto* begin = logits.data() + group * kGroup;
    return std::find(begin, logits.data() + logits.size(), row.top) - logits.data();
  }
  return 0;
}

// Works the limits off one after the other, each on what those before it left.
class Selection {
 public:
  Selection(const Row& row, const Limits& limits, const SamplingKernels& kernels)
      : row_(row), kernels_(kernels), scale_(inverse_temperature(limits)), temperature_(limits.temperature) {}

  bool is_everything() const { return is_everything_; }

  void min_p(double share) { collect(row_.top + temperature_ * std::log(share), kInf); }

  void top_k(int64_t count) {
    if (is_everything_) {
      if (count >= size()) return;
      std::vector<float> maxima = row_.maxima;
      double least = -kInf;  // at least so many groups have a value that is not below this
      if (count <= static_cast<int64_t>(maxima.size())) {
        const auto nth = maxima.begin() + (count - 1);
        std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
        least = *nth;
      }
      collect(least, kInf);
    }
    keep(by_logit(), std::vector<double>(ids_.size(), 1.0), static_cast<double>(count));
  }

  void top_p(double share) {
    const double needed = share * total(false);
    if (is_everything_) {
      // All that is less likely than this together falls short of what may be left out.
      const double bound = std::log((1 - share) * total_ / static_cast<double>(size()));
      for (const double reach : {-kFirstLook, bound, -kInf}) {
        collect(row_.top + reach / scale_, kInf);
        if (reach == -kInf || kernels_.sum(weights_.data(), std::ssize(weights_)) >= needed) break;
      }
    }
    keep(by_logit(), weights_, needed);
  }

  void typical_p(double share) {
    const double needed = share * total(true);
    const double mean = moment() / total_;  // of the log weight; the surprise is that but for a constant and the sign
    if (is_everything_) {
      const double bound = std::log((1 - share) * total_ / static_cast<double>(size()));
      for (const double reach : {kFirstLook, std::max(mean - bound, -mean), kInf}) {
        const double middle = row_.top + mean / scale_;
        collect(reach == kInf ? -kInf : middle - reach / scale_, reach == kInf ? kInf : middle + reach / scale_);
        if (reach == kInf || kernels_.sum(weights_.data(), std::ssize(weights_)) >= needed) break;
      }
    }
    std::vector<double> keys(ids_.size());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = std::abs((double{x_[i]} - row_.top) * scale_ - mean);
    keep(keys, weights_, needed);
  }

  Kept kept() && { return {std::move(ids_), std::move(weights_)}; }

 private:
  int64_t size() const { return std::ssize(row_.logits); }

  // Goes on with the ids whose logits lie in [low, high]. Groups that have none are passed over.
  void collect(double low, double high) {
    size_t count = 0;
    for (int64_t group = 0; group < std::ssize(row_.maxima); ++group) {
      if (!(row_.maxima[static_cast<size_t>(group)] >= low)) continue;
      ids_.resize(count + kGroup);
      x_.resize(count + kGroup);
      for (int64_t id = group * kGroup; id < std::min(size(), (group + 1) * kGroup); ++id) {
        const float x = row_.logits[static_cast<size_t>(id)];
        ids_[count] = static_cast<int32_t>(id);  // kept or overwritten: a branch would be mispredicted
        x_[count] = x;
        count += static_cast<size_t>(x >= low) & static_cast<size_t>(x <= high);
      }
    }
    ids_.resize(count);
    x_.resize(count);
    weights_.resize(count);
    kernels_.weights(x_.data(), std::ssize(x_), row_.top, scale_, weights_.data());
    is_everything_ = false;
  }

  // The sum of all weights left.
  double total(bool wants_moments) {
    if (!is_everything_) return total_ = kernels_.sum(weights_.data(), std::ssize(weights_));
    sums_ = sum_everything(row_, scale_, kernels_, wants_moments);
    return total_ = sums_.weights;
  }

  // The sum of weight * log weight, after total(true).
  double moment() const {
    if (is_everything_) return sums_.moments;
    return kernels_.moment(x_.data(), weights_.data(), std::ssize(x_), row_.top, scale_);
  }

  std::vector<double> by_logit() const {
    std::vector<double> keys(x_.size());
    std::transform(x_.begin(), x_.end(), keys.begin(), [](float x) { return -double{x}; });
    return keys;
  }

  void keep(const std::vector<double>& keys, const std::vector<double>& shares, double needed) {
    const std::vector<uint8_t> is_kept = select_lowest(keys, shares, needed);
    size_t size = 0;
    for (size_t i = 0; i < is_kept.size(); ++i) {
      ids_[size] = ids_[i];
      x_[size] = x_[i];
      weights_[size] = weights_[i];
      size += is_kept[i];
    }
    ids_.resize(size);
    x_.resize(size);
    weights_.resize(size);
  }

  const Row& row_;
  const SamplingKernels& kernels_;
  const double scale_, temperature_;
  bool is_everything_ = true;
  double total_ = 0;
  Sums sums_{};
  std::vector<int32_t> ids_;
  std::vector<float> x_;
  std::vector<double> weights_;
};

}  // namespace

Row read_row(std::span<const float> logits, const SamplingKernels& kernels) {
  Row row{logits, std::vector<float>((logits.size() + kGroup - 1) / kGroup), 0, 0};
  if (kernels.group_maxima(logits.data(), std::ssize(logits), row.maxima.data())) {
    row.top = *std::max_element(row.maxima.begin(), row.maxima.end());
    row.best_id = find_best(logits, row);
    return row;
  }
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
  const auto best = bad != logits.end() ? bad : std::max_element(logits.begin(), logits.end());
  row.top = *best;
  row.best_id = best - logits.begin();
  return row;
}

Sums sum_everything(const Row& row, double inverse_temperature, const SamplingKernels& kernels, bool wants_moments) {
  Sums sums{};
  double weights[kBlock];
  const int64_t size = std::ssize(row.logits);
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = std::min(kBlock, size - begin);
    if (is_excluded(row.maxima, begin, count)) continue;
    const float* x = row.logits.data() + begin;
    kernels.weights(x, count, row.top, inverse_temperature, weights);
    sums.weights += kernels.sum(weights, count);
    if (wants_moments) sums.moments += kernels.moment(x, weights, count, row.top, inverse_temperature);
  }
  return sums;
}

double inverse_temperature(const Limits& limits) { return std::min(1 / limits.temperature, 1e300); }

std::optional<Kept> apply_limits(const Row& row, const Limits& limits, const SamplingKernels& kernels) {
  Selection selection(row, limits, kernels);
  if (limits.min_p > 0) selection.min_p(limits.min_p);
  if (limits.top_k > 0) selection.top_k(limits.top_k);
  if (limits.top_p < 1) selection.top_p(limits.top_p);
  if (limits.typical_p < 1) selection.typical_p(limits.typical_p);
  if (selection.is_everything()) return std::nullopt;
  return std::move(selection).kept();
}

}  // namespace outrider
