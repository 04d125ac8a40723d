// A model with the caches of its sequences: what the bindings show.
//
// Every function throws std::invalid_argument for an argument that cannot be honoured, and then has changed nothing.
// A model belongs to one thread at a time; a call that finds another inside throws too, rather than race with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "model/executor.h"

namespace outrider {

// A sequence would outgrow max_length.
class ContextOverflow : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Tokens to append to one sequence: Rows in backends/base.py.
struct Request {
  int64_t sequence;
  std::vector<int64_t> tokens;
  int64_t num_logits;
  std::optional<std::vector<int64_t>> parents;
};

struct Logits {
  std::shared_ptr<AlignedBuffer> values;  // [num_rows, vocab_size]; overwritten by the next pass
  int64_t num_rows;
};

class Model {
 public:
  Model(ModelConfig config, int num_threads, int64_t max_length, std::string_view isa);

  void add(const Tensor& tensor, PackAs pack_as);
  // Cuts the head to these tokens, ids in ascending order: the logits of all others are minus infinity from then on.
  void cut_head(std::vector<int64_t> token_ids);
  void finish();  // after the last tensor, before the first pass

  int64_t open();
  void close(int64_t sequence);
  int64_t fork(int64_t sequence);
  int64_t length(int64_t sequence);
  void crop(int64_t sequence, int64_t length);
  void keep_path(int64_t sequence, std::span<const int64_t> nodes);
  Logits forward(std::span<const Request> requests);

  const ModelConfig& config() const { return config_; }
  Isa isa() const { return isa_; }
  int num_threads() const { return pool_.num_threads(); }
  int64_t max_length() const { return cache_.max_length(); }
  int64_t weight_bytes();
  int64_t cache_bytes();

 private:
  class InUse;
  std::vector<Sequence*> check_requests(std::span<const Request> requests);
  std::vector<Row> rows_of(std::span<const Request> requests, std::span<Sequence* const> sequences) const;

  std::atomic_flag in_use_;
  const ModelConfig config_;
  const Isa isa_;
  ThreadPool pool_;
  Weights weights_;
  KvCache cache_;
  std::unique_ptr<Executor> executor_;  // once finished
  std::shared_ptr<AlignedBuffer> logits_;
};

}  // namespace outrider
