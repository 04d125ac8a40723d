#include "sampling/law.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "sampling/noise.h"

namespace outrider {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// Bounds hold but for rounding, which stays far within this.
constexpr double kMargin = 1 + 1e-12;

void check_listed(std::span<const double> weights, const std::vector<int32_t>* ids, int64_t vocab_size) {
  for (const double weight : weights)
    if (!(weight >= 0 && weight < kInf))
      throw std::invalid_argument("a law's weights are finite and not negative; there is " + std::to_string(weight));
  if (std::ssize(weights) != (ids ? std::ssize(*ids) : vocab_size))
    throw std::invalid_argument("there must be a weight for each id; there are " + std::to_string(weights.size()));
  for (size_t i = 0; ids && i < ids->size(); ++i)
    if ((*ids)[i] < 0 || (*ids)[i] >= vocab_size || (i > 0 && (*ids)[i] <= (*ids)[i - 1]))
      throw std::invalid_argument("ids must ascend and lie below " + std::to_string(vocab_size) + "; there is " +
                                  std::to_string((*ids)[i]));
}

}  // namespace

// What is left of one law over every id where another was drawn from; worked out where it is looked at.
class Law::Difference final : public Entries {
 public:
  Difference(const Law& target, const Law& drafted, double scale) : target_(target), drafted_(drafted), scale_(scale) {}
  void fill(int64_t begin, int64_t count, double* out) const override {
    double drafted[kBlock];
    target_.entries_->fill(begin, count, out);
    if (drafted_.ids_)
      drafted_.fill_ids(begin, count, drafted);
    else
      drafted_.entries_->fill(begin, count, drafted);
    const double drafted_scale = drafted_.ids_ ? 1.0 : drafted_.scale_;
    target_.kernels_->difference(out, target_.scale_, scale_, drafted, drafted_scale, count, out);
  }
  // Where the draft had no chance of anything, all of the target's is left, and its sum is known.
  double sum(int64_t begin, int64_t count, const SamplingKernels& kernels) const override {
    if (drafted_.has_weight(begin, count)) return Entries::sum(begin, count, kernels);
    return target_.block_sums_[static_cast<size_t>(begin / kBlock)] * target_.scale_ * scale_;
  }

 private:
  Law target_, drafted_;
  double scale_;
};

Law::Law(const Row& row, const Limits& limits, const SamplingKernels& kernels, std::shared_ptr<const void> owner)
    : Law(std::ssize(row.logits), kernels) {
  if (std::optional<Kept> kept = apply_limits(row, limits, kernels)) {
    const int64_t count = std::ssize(kept->ids);
    ids_ = std::make_shared<const std::vector<int32_t>>(std::move(kept->ids));
    set(std::make_shared<const ListedEntries>(std::move(kept->weights)), count);
  } else {
    set(std::make_shared<const SoftmaxEntries>(row.logits, std::move(owner), row.maxima, row.top,
                                               inverse_temperature(limits), kernels),
        vocab_size_);
  }
  scale_ = 1 / total_;
}

Law::Law(std::vector<double> weights, std::shared_ptr<const std::vector<int32_t>> ids, int64_t vocab_size,
         const SamplingKernels& kernels)
    : Law(vocab_size, kernels) {
  check_listed(weights, ids.get(), vocab_size);
  ids_ = std::move(ids);
  const int64_t count = std::ssize(weights);
  set(std::make_shared<const ListedEntries>(std::move(weights)), count);
}

template <class F> void Law::each_block(const F& f) const {
  double weights[kBlock];
  for (int64_t begin = 0; begin < num_entries_; begin += kBlock) {
    const int64_t count = std::min(kBlock, num_entries_ - begin);
    entries_->fill(begin, count, weights);
    f(begin, count, weights);
  }
}

void Law::set(std::shared_ptr<const Entries> entries, int64_t num_entries) {
  entries_ = std::move(entries);
  num_entries_ = num_entries;
  for (int64_t begin = 0; begin < num_entries; begin += kBlock) {
    block_sums_.push_back(entries_->sum(begin, std::min(kBlock, num_entries - begin), *kernels_));
    total_ += block_sums_.back();
  }
}

bool Law::has_weight(int64_t begin, int64_t count) const {
  if (!ids_) return block_sums_[static_cast<size_t>(begin / kBlock)] > 0;
  const auto first = std::lower_bound(ids_->begin(), ids_->end(), begin);
  return first != ids_->end() && *first < begin + count;
}

void Law::check_drawable() const {
  if (!(total_ > 0 && total_ < kInf))
    throw std::invalid_argument("cannot draw from weights with the sum " + std::to_string(total_));
}

double Law::max() const {
  if (num_entries_ == 0) return 0;
  const std::vector<double> bounds = entries_->group_bounds(num_entries_);
  return *std::max_element(bounds.begin(), bounds.end()) * scale_;
}

double Law::prob(int64_t id) const {
  double probability;
  fill_ids(id, 1, &probability);
  return probability;
}

void Law::fill_ids(int64_t begin, int64_t count, double* out) const {
  if (!ids_) {
    entries_->fill(begin, count, out);
    for (int64_t i = 0; i < count; ++i) out[i] *= scale_;
    return;
  }
  std::fill_n(out, count, 0.0);
  const auto first = std::lower_bound(ids_->begin(), ids_->end(), begin);
  for (auto id = first; id != ids_->end() && *id < begin + count; ++id) {
    double weight;
    entries_->fill(id - ids_->begin(), 1, &weight);
    out[*id - begin] = weight * scale_;
  }
}

void Law::probs(double* out) const {
  for (int64_t begin = 0; begin < vocab_size_; begin += kBlock)
    fill_ids(begin, std::min(kBlock, vocab_size_ - begin), out + begin);
}

int64_t Law::draw(double uniform) const {
  check_drawable();
  double rest = uniform * total_;
  int64_t block = 0, last = 0;  // the last block that has any weight: rounding may lead beyond it
  for (int64_t b = 0; b < std::ssize(block_sums_); ++b)
    if (block_sums_[static_cast<size_t>(b)] > 0) last = b;
  for (; block < last && !(block_sums_[static_cast<size_t>(block)] > rest); ++block)
    rest -= block_sums_[static_cast<size_t>(block)];
  double weights[kBlock], reached = 0;
  const int64_t begin = block * kBlock, count = std::min(kBlock, num_entries_ - begin);
  entries_->fill(begin, count, weights);
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!(weights[i] > 0)) continue;
    found = i;
    if ((reached += weights[i]) > rest) break;
  }
  return id_of(begin + found);
}

// Races some entries, whose ids ascend; best_time is that of best_id so far.
int64_t Law::race_entries(uint64_t key, int64_t begin, int64_t count, double& best_time, int64_t best_id) const {
  double weights[kBlock], least = 0, bound = 0;
  entries_->fill(begin, count, weights);
  int64_t group = -1, place = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!(weights[i] > 0)) continue;
    const int64_t id = id_of(begin + i);
    if (id / kNoiseGroup != group) {
      group = id / kNoiseGroup;
      const GroupNoise noise = group_noise(key, group);
      bound = noise.bound();
      place = noise.place();
      least = -1;  // known when it is needed
    }
    const double latest = best_time * weights[i] * kMargin;
    if (bound > latest) continue;
    if (least < 0) least = group_noise(key, group).least();
    if (least > latest) continue;
    const double time = (id % kNoiseGroup == place ? least : least + noise_beyond(key, id)) / weights[i];
    if (time < best_time || (time == best_time && (best_id < 0 || id < best_id))) {
      best_time = time;
      best_id = id;
    }
  }
  return best_id;
}

int64_t Law::race(uint64_t key) const {
  check_drawable();
  double best_time = kInf;
  int64_t best_id = -1;
  if (ids_) {
    for (int64_t begin = 0; begin < num_entries_; begin += kBlock)
      best_id = race_entries(key, begin, std::min(kBlock, num_entries_ - begin), best_time, best_id);
    return best_id;
  }
  static_assert(kGroup == kNoiseGroup);
  const std::vector<double> bounds = entries_->group_bounds(num_entries_);
  const auto enter = [&](int64_t group) {
    const int64_t begin = group * kGroup;
    best_id = race_entries(key, begin, std::min(kGroup, num_entries_ - begin), best_time, best_id);
  };
  // The likeliest group first: it mostly sets a time that few others can beat.
  enter(std::max_element(bounds.begin(), bounds.end()) - bounds.begin());
  for (int64_t group = 0; group < std::ssize(bounds); ++group) {
    const double bound = bounds[static_cast<size_t>(group)];
    if (bound > 0 && group_noise(key, group).bound() <= best_time * bound * kMargin) enter(group);
  }
  return best_id;
}

Law Law::residual(const Law& drafted, double scale) const {
  if (drafted.vocab_size_ != vocab_size_)
    throw std::invalid_argument("laws over " + std::to_string(vocab_size_) + " and " +
                                std::to_string(drafted.vocab_size_) + " ids have no difference");
  Law left(vocab_size_, *kernels_);
  if (!ids_) {
    left.set(std::make_shared<const Difference>(*this, drafted, scale), vocab_size_);
    return left;
  }
  std::vector<double> weights(ids_->size()), theirs(ids_->size());
  each_block([&](int64_t begin, int64_t count, const double* own) { std::copy_n(own, count, &weights[begin]); });
  for (size_t i = 0; i < theirs.size(); ++i) theirs[i] = drafted.prob((*ids_)[i]);
  kernels_->difference(weights.data(), scale_, scale, theirs.data(), 1.0, std::ssize(weights), weights.data());
  left.ids_ = ids_;
  left.set(std::make_shared<const ListedEntries>(std::move(weights)), num_entries_);
  return left;
}

Law Law::normalised() const {
  check_drawable();
  Law law = *this;
  law.scale_ = 1 / total_;
  if (law.scale_ == kInf) throw std::invalid_argument("cannot normalise weights with the sum " + std::to_string(total_));
  return law;
}

Law Law::without(int64_t id) const {
  std::vector<double> weights(static_cast<size_t>(num_entries_));
  each_block([&](int64_t begin, int64_t count, const double* own) { std::copy_n(own, count, &weights[begin]); });
  for (int64_t entry = 0; entry < num_entries_; ++entry)
    if (id_of(entry) == id) weights[static_cast<size_t>(entry)] = 0;
  Law rest(vocab_size_, *kernels_);
  rest.ids_ = ids_;
  rest.set(std::make_shared<const ListedEntries>(std::move(weights)), num_entries_);
  if (rest.total_ > 0) rest.scale_ = 1 / rest.total_;
  return rest;
}

std::vector<std::pair<int64_t, double>> Law::top(int64_t count) const {
  std::vector<std::pair<int64_t, double>> best;
  if (count <= 0) return best;
  const std::vector<double> bounds = entries_->group_bounds(num_entries_);
  double least = 0;  // at least so many entries have this weight
  if (count <= std::ssize(bounds)) {
    std::vector<double> ordered = bounds;
    const auto nth = ordered.begin() + (count - 1);
    std::nth_element(ordered.begin(), nth, ordered.end(), std::greater<>());
    least = *nth / kMargin;
  }
  double weights[kGroup];
  for (int64_t group = 0; group < std::ssize(bounds); ++group) {
    if (bounds[static_cast<size_t>(group)] * kMargin < least) continue;
    const int64_t begin = group * kGroup, size = std::min(kGroup, num_entries_ - begin);
    entries_->fill(begin, size, weights);
    for (int64_t i = 0; i < size; ++i)
      if (weights[i] > 0 && weights[i] >= least) best.emplace_back(id_of(begin + i), weights[i] * scale_);
  }
  const auto likelier = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  const auto end = best.begin() + std::min(count, std::ssize(best));
  std::partial_sort(best.begin(), end, best.end(), likelier);
  best.erase(end, best.end());
  return best;
}

}  // namespace outrider
