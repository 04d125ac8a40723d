// A law over a vocabulary, or what a rejection has left of one, with everything that verification asks of it.
//
// A law whose limits leave few tokens lists them; a softmax over everything keeps its logits. Sums are held by blocks of
// 512 entries, so that a draw works out one block. Never modified once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "sampling/entries.h"
#include "sampling/limits.h"

namespace outrider {

class Law {
 public:
  // The law of a row whose top is finite. The row is copied, if it is needed later and has no owner who keeps it.
  Law(const Row& row, const Limits& limits, const SamplingKernels& kernels, std::shared_ptr<const void> owner);
  // Given weights, not normalised, of ascending ids, or of every id. Throws std::invalid_argument for weights that are
  // not finite and at least zero, and for ids that are not ascending and below vocab_size.
  Law(std::vector<double> weights, std::shared_ptr<const std::vector<int32_t>> ids, int64_t vocab_size,
      const SamplingKernels& kernels);

  int64_t vocab_size() const { return vocab_size_; }
  double prob(int64_t id) const;
  double sum() const { return total_ * scale_; }
  double max() const;
  void probs(double* out) const;  // of every id
  // The first id at which the cumulated weights exceed uniform, in [0, 1), times their sum; never one of zero weight.
  int64_t draw(double uniform) const;
  // The id of the least noise / weight, the lowest on a tie.
  int64_t race(uint64_t key) const;
  // max(scale * this - drafted, 0), not normalised. Both have the same vocabulary.
  Law residual(const Law& drafted, double scale) const;
  Law normalised() const;
  // The law of another id than this one, normalised if anything is left.
  Law without(int64_t id) const;
  // The likeliest ids with their probabilities, the lowest on a tie, and none that is impossible.
  std::vector<std::pair<int64_t, double>> top(int64_t count) const;

 private:
  class Difference;
  Law(int64_t vocab_size, const SamplingKernels& kernels) : kernels_(&kernels), vocab_size_(vocab_size) {}
  void set(std::shared_ptr<const Entries> entries, int64_t num_entries);
  void check_drawable() const;
  // Whether any id of one block may have weight.
  bool has_weight(int64_t begin, int64_t count) const;
  int64_t id_of(int64_t entry) const { return ids_ ? (*ids_)[static_cast<size_t>(entry)] : entry; }
  // The probabilities of count consecutive ids.
  void fill_ids(int64_t begin, int64_t count, double* out) const;
  template <class F> void each_block(const F& f) const;
  int64_t race_entries(uint64_t key, int64_t begin, int64_t count, double& best_time, int64_t best_id) const;

  const SamplingKernels* kernels_;
  int64_t vocab_size_;
  std::shared_ptr<const std::vector<int32_t>> ids_;  // none for every id
  std::shared_ptr<const Entries> entries_;
  int64_t num_entries_ = 0;
  std::vector<double> block_sums_;
  double total_ = 0;  // of the weights
  double scale_ = 1;  // from weights to probabilities
};

}  // namespace outrider
