#include "model/model.h"

#include <set>
#include <string>

namespace outrider {
namespace {

ModelConfig checked(ModelConfig config) {
  check(config);
  return config;
}

}  // namespace

class Model::InUse {
 public:
  explicit InUse(Model& model) : model_(model) {
    if (model_.in_use_.test_and_set(std::memory_order_acquire))
      throw std::invalid_argument("the model is in use by another thread; let one thread at a time call it");
  }
  ~InUse() { model_.in_use_.clear(std::memory_order_release); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  Model& model_;
};

Model::Model(ModelConfig config, int num_threads, int64_t max_length, std::string_view isa)
    : config_(checked(std::move(config))),
      isa_(choose_isa(isa)),
      pool_(num_threads),
      weights_(config_),
      cache_(config_, max_length),
      logits_(std::make_shared<AlignedBuffer>()) {}

void Model::add(const Tensor& tensor, PackAs pack_as) {
  const InUse guard(*this);
  if (executor_) throw std::invalid_argument("the model is finished and takes no more tensors");
  weights_.add(tensor, pack_as, pool_);
}

void Model::cut_head(std::vector<int64_t> token_ids) {
  const InUse guard(*this);
  weights_.cut_head(std::move(token_ids));
}

void Model::finish() {
  const InUse guard(*this);
  if (executor_) throw std::invalid_argument("the model is finished already");
  weights_.finish(pool_);
  executor_ = std::make_unique<Executor>(config_, weights_, cache_, pool_, isa_);
}

int64_t Model::open() {
  const InUse guard(*this);
  return cache_.open();
}

void Model::close(int64_t sequence) {
  const InUse guard(*this);
  cache_.close(sequence);
}

int64_t Model::fork(int64_t sequence) {
  const InUse guard(*this);
  return cache_.fork(sequence);
}

int64_t Model::length(int64_t sequence) {
  const InUse guard(*this);
  return cache_.at(sequence).length;
}

void Model::crop(int64_t sequence, int64_t length) {
  const InUse guard(*this);
  cache_.crop(sequence, length);
}

int64_t Model::weight_bytes() {
  const InUse guard(*this);
  return weights_.bytes();
}

int64_t Model::cache_bytes() {
  const InUse guard(*this);
  return cache_.bytes();
}

std::vector<Sequence*> Model::check_requests(std::span<const Request> requests) {
  if (!executor_) throw std::invalid_argument("the model is not finished; add its tensors and call finish()");
  std::set<int64_t> seen;
  std::vector<Sequence*> sequences;
  for (const Request& request : requests) {
    Sequence& sequence = cache_.at(request.sequence);
    const std::string name = "sequence " + std::to_string(request.sequence);
    if (!seen.insert(request.sequence).second)
      throw std::invalid_argument(name + " is given twice; put its tokens into one entry of the batch");
    if (request.tokens.empty())
      throw std::invalid_argument(name + " is given no tokens; give one at least, or leave it out of the batch");
    const auto count = static_cast<int64_t>(request.tokens.size());
    check_range("num_logits", request.num_logits, 0, count, "logits can be had for the tokens of the pass");
    for (const int64_t token : request.tokens)
      check_range("a token id", token, 0, config_.vocab_size - 1, "use the model's own tokenizer");
    if (count > max_length() - sequence.length)
      throw ContextOverflow(name + " holds " + std::to_string(sequence.length) + " tokens and would hold " +
                            std::to_string(sequence.length + count) + ", more than max_length " +
                            std::to_string(max_length()) + "; shorten it or load the model with a larger max_length");
    sequences.push_back(&sequence);
  }
  return sequences;
}

std::vector<Row> Model::rows_of(std::span<const Request> requests, std::span<Sequence* const> sequences) const {
  std::vector<Row> rows;
  for (size_t s = 0; s < requests.size(); ++s) {
    const auto count = static_cast<int64_t>(requests[s].tokens.size());
    for (int64_t i = 0; i < count; ++i)
      rows.push_back({sequences[s], sequences[s]->length + i, requests[s].tokens[i],
                      i >= count - requests[s].num_logits});
  }
  return rows;
}

Logits Model::forward(std::span<const Request> requests) {
  const InUse guard(*this);
  const std::vector<Sequence*> sequences = check_requests(requests);
  const std::vector<Row> rows = rows_of(requests, sequences);
  int64_t num_logits = 0;
  for (const Row& row : rows) num_logits += row.wants_logits;
  const size_t logits_bytes = num_logits * config_.vocab_size * sizeof(float);
  // Whoever holds the array of an earlier pass keeps its memory, so a larger one is a new one.
  if (logits_bytes > logits_->bytes()) logits_ = std::make_shared<AlignedBuffer>(logits_bytes);
  for (size_t s = 0; s < requests.size(); ++s)
    cache_.reserve(*sequences[s], sequences[s]->length + static_cast<int64_t>(requests[s].tokens.size()));

  const auto num_rows = static_cast<int64_t>(rows.size());
  const int64_t num_pieces = (num_rows + Executor::kMaxRows - 1) / Executor::kMaxRows;
  float* logits = logits_->as<float>();
  for (int64_t piece = 0; piece < num_pieces; ++piece) {
    const int64_t begin = num_rows * piece / num_pieces, end = num_rows * (piece + 1) / num_pieces;
    executor_->run({rows.data() + begin, rows.data() + end}, logits);
    for (int64_t r = begin; r < end; ++r) logits += rows[r].wants_logits * config_.vocab_size;
  }
  for (size_t s = 0; s < requests.size(); ++s) sequences[s]->length += static_cast<int64_t>(requests[s].tokens.size());
  return {logits_, num_logits};
}

}  // namespace outrider
