#include "model/model.h"

#include <set>
#include <string>

namespace outrider {
namespace {

void check_parents(const std::vector<int64_t>& parents, size_t num_tokens) {
  const auto count = static_cast<int64_t>(parents.size());
  check_range("the number of parents", count, num_tokens, num_tokens, "give one for each token, or none at all");
  for (int64_t node = 0; node < count; ++node)
    check_range("the parent of a node", parents[node], -1, node - 1, "it is an earlier node, or -1 for none");
}

// Where the tokens of a pass lie.
std::vector<AttentionRow> places_of(const Request& request, const Sequence& sequence) {
  const auto count = static_cast<int64_t>(request.tokens.size());
  std::vector<AttentionRow> places;
  for (int64_t i = 0; i < count; ++i) {
    AttentionRow place{.position = sequence.length + i};
    if (request.parents) {
      const int64_t parent = (*request.parents)[i];
      place.position = parent < 0 ? sequence.length : places[parent].position + 1;
      place.in_place = parent < 0 ? sequence.length : places[parent].in_place;
      if (place.in_place == place.position && place.position == sequence.length + i) ++place.in_place;
      place.tree = sequence.length;
      place.node = i;
      place.parents = request.parents->data();
    }
    places.push_back(place);
  }
  return places;
}

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

void Model::keep_path(int64_t id, std::span<const int64_t> nodes) {
  const InUse guard(*this);
  Sequence& sequence = cache_.at(id);
  if (!sequence.has_tree)
    throw std::invalid_argument("sequence " + std::to_string(id) + " holds no tree to keep a path of");
  int64_t parent = -1;
  for (const int64_t node : nodes) {
    check_range("a node", node, 0, static_cast<int64_t>(sequence.parents.size()) - 1, "the tree has no others");
    if (sequence.parents[node] != parent)
      throw std::invalid_argument("node " + std::to_string(node) + " follows " +
                                  std::to_string(sequence.parents[node]) + " in the tree, not " +
                                  std::to_string(parent) + "; a path leads from a child of -1 from parent to child");
    parent = node;
  }
  // A node lies no earlier than its place on the path, so none is overwritten before it has moved.
  const auto count = static_cast<int64_t>(nodes.size());
  for (int64_t i = 0; i < count; ++i) executor_->copy(sequence, sequence.tree + nodes[i], sequence.tree + i);
  sequence.has_tree = false;
  cache_.crop(id, sequence.tree + count);
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
    Sequence& sequence = cache_.without_tree(request.sequence);
    const std::string name = "sequence " + std::to_string(request.sequence);
    if (!seen.insert(request.sequence).second)
      throw std::invalid_argument(name + " is given twice; put its tokens into one entry of the batch");
    if (request.tokens.empty())
      throw std::invalid_argument(name + " is given no tokens; give one at least, or leave it out of the batch");
    const auto count = static_cast<int64_t>(request.tokens.size());
    check_range("num_logits", request.num_logits, 0, count, "logits can be had for the tokens of the pass");
    for (const int64_t token : request.tokens)
      check_range("a token id", token, 0, config_.vocab_size - 1, "use the model's own tokenizer");
    if (request.parents) check_parents(*request.parents, request.tokens.size());
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
    const std::vector<AttentionRow> places = places_of(requests[s], *sequences[s]);
    const auto count = static_cast<int64_t>(places.size());
    for (int64_t i = 0; i < count; ++i)
      rows.push_back({sequences[s], places[i], sequences[s]->length + i, requests[s].tokens[i],
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
  // Whatever may find no memory comes first; the pass itself then changes all of the sequences or, refused, none.
  for (size_t s = 0; s < requests.size(); ++s) {
    cache_.reserve(*sequences[s], sequences[s]->length + static_cast<int64_t>(requests[s].tokens.size()));
    if (requests[s].parents) sequences[s]->parents = *requests[s].parents;
  }

  const auto num_rows = static_cast<int64_t>(rows.size());
  const int64_t num_pieces = (num_rows + Executor::kMaxRows - 1) / Executor::kMaxRows;
  float* logits = logits_->as<float>();
  for (int64_t piece = 0; piece < num_pieces; ++piece) {
    const int64_t begin = num_rows * piece / num_pieces, end = num_rows * (piece + 1) / num_pieces;
    executor_->run({rows.data() + begin, rows.data() + end}, logits);
    for (int64_t r = begin; r < end; ++r) logits += rows[r].wants_logits * config_.vocab_size;
  }
  for (size_t s = 0; s < requests.size(); ++s) {
    Sequence& sequence = *sequences[s];
    sequence.has_tree = requests[s].parents.has_value();
    sequence.tree = sequence.length;
    sequence.length += static_cast<int64_t>(requests[s].tokens.size());
  }
  return {logits_, num_logits};
}

}  // namespace outrider
