// The keys and values of many sequences.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "aligned.h"
#include "model/config.h"

namespace outrider {

// The cache of one sequence: chunks of 256 positions, each holding all layers and heads, so that growing copies
// nothing. What lies beyond `length` is never read, so forgetting is setting `length`. Forks share chunks until one of
// them writes there. Nodes of a tree lie behind the rest in the order that they were given in, until a path is kept.
struct Sequence {
  int64_t length = 0;  // slots in use
  bool has_tree = false;
  int64_t tree = 0;              // the slot of the tree's first node
  std::vector<int64_t> parents;  // of its nodes, -1 for what lies before the tree
  std::vector<std::shared_ptr<AlignedBuffer>> chunks;
  std::vector<int16_t*> chunk_data;  // where each chunk begins
};

// With a cache_window, chunks that no later query sees are forgotten, but for the first; so is the way back to them.
class KvCache {
 public:
  KvCache(const ModelConfig& config, int64_t max_length);

  int64_t open();
  void close(int64_t id);
  // All throw std::invalid_argument for a sequence that is not open.
  Sequence& at(int64_t id);
  Sequence& without_tree(int64_t id);  // throws for one with a tree, too
  int64_t fork(int64_t id);
  void crop(int64_t id, int64_t length);
  // Makes room for `length` positions, those from the present length on its own. `length` has been checked against
  // max_length. std::bad_alloc changes nothing that can be seen.
  void reserve(Sequence& sequence, int64_t length) const;

  int64_t max_length() const { return max_length_; }
  int64_t bytes() const;  // allocated now, what is shared counted once
  // Elements from the beginning of a chunk to the blocks of one layer and key-value head.
  int64_t offset(int64_t layer, int64_t kv_head) const;

 private:
  int64_t add(Sequence sequence);

  void forget(Sequence& sequence) const;

  int64_t num_kv_heads_, head_elements_, chunk_elements_, max_length_, window_;
  int64_t next_id_ = 0;
  std::map<int64_t, Sequence> sequences_;
};

}  // namespace outrider
