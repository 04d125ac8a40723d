// Weights of a run of entries, worked out where they are asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sampling/kernels.h"

namespace outrider {

class Entries {
 public:
  virtual ~Entries() = default;
  // Writes the weights of entries begin .. begin + count - 1, at most kBlock of them.
  virtual void fill(int64_t begin, int64_t count, double* out) const = 0;
  // The sum of these weights.
  virtual double sum(int64_t begin, int64_t count, const SamplingKernels& kernels) const {
    double weights[kBlock];
    fill(begin, count, weights);
    return kernels.sum(weights, count);
  }
  // For each group of 64 of n entries a weight that none of them exceeds by more than rounding.
  virtual std::vector<double> group_bounds(int64_t n) const {
    std::vector<double> bounds;
    double weights[kGroup];
    for (int64_t begin = 0; begin < n; begin += kGroup) {
      const int64_t count = std::min(kGroup, n - begin);
      fill(begin, count, weights);
      bounds.push_back(*std::max_element(weights, weights + count));
    }
    return bounds;
  }
};

// Given weights.
class ListedEntries final : public Entries {
 public:
  explicit ListedEntries(std::vector<double> weights) : weights_(std::move(weights)) {}
  void fill(int64_t begin, int64_t count, double* out) const override {
    std::copy_n(weights_.data() + begin, count, out);
  }

 private:
  std::vector<double> weights_;
};

// exp((logit - top) / temperature): the logits are kept, a third of what the weights would take to write and read.
class SoftmaxEntries final : public Entries {
 public:
  // Copies the logits, unless they have an owner who keeps them as they are; but not what is excluded, of a model that
  // cannot say every token most of them.
  SoftmaxEntries(std::span<const float> logits, std::shared_ptr<const void> owner, std::vector<float> maxima, float top,
                 double inverse_temperature, const SamplingKernels& kernels)
      : owner_(std::move(owner)), logits_(logits.data()), maxima_(std::move(maxima)), top_(top),
        inverse_temperature_(inverse_temperature), kernels_(kernels) {
    if (owner_) return;
    const std::shared_ptr<float[]> copy(new float[logits.size()]);
    const int64_t size = std::ssize(logits);
    for (int64_t begin = 0; begin < size; begin += kBlock) {
      const int64_t count = std::min(kBlock, size - begin);
      if (!is_excluded(maxima_, begin, count)) std::copy_n(logits.data() + begin, count, copy.get() + begin);
    }
    logits_ = copy.get();
    owner_ = copy;
  }
  void fill(int64_t begin, int64_t count, double* out) const override {
    if (is_excluded(maxima_, begin, count))
      std::fill_n(out, count, 0.0);
    else
      kernels_.weights(logits_ + begin, count, top_, inverse_temperature_, out);
  }
  double sum(int64_t begin, int64_t count, const SamplingKernels& kernels) const override {
    return is_excluded(maxima_, begin, count) ? 0.0 : Entries::sum(begin, count, kernels);
  }
  std::vector<double> group_bounds(int64_t) const override {
    std::vector<double> bounds(maxima_.size());
    kernels_.weights(maxima_.data(), static_cast<int64_t>(maxima_.size()), top_, inverse_temperature_, bounds.data());
    return bounds;
  }

 private:
  std::shared_ptr<const void> owner_;
  const float* logits_;
  std::vector<float> maxima_;
  float top_;
  double inverse_temperature_;
  const SamplingKernels& kernels_;
};

}  // namespace outrider
