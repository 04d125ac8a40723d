#include "model/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>

#include "ops/ops.h"

namespace outrider {
namespace {

constexpr size_t kMaxSequences = 1 << 16;

int64_t chunks_for(int64_t length) { return (length + kChunkPositions - 1) / kChunkPositions; }

}  // namespace

KvCache::KvCache(const ModelConfig& config, int64_t max_length)
    : num_kv_heads_(config.num_kv_heads),
      head_elements_(kBlocksPerChunk * block_elements(config.head_dim)),
      chunk_elements_(config.num_layers * num_kv_heads_ * head_elements_),
      max_length_(max_length),
      window_(config.cache_window) {
  check_range("max_length", max_length, 1, config.context_length,
              "a sequence can be no longer than the model's context");
}

int64_t KvCache::offset(int64_t layer, int64_t kv_head) const {
  return (layer * num_kv_heads_ + kv_head) * head_elements_;
}

int64_t KvCache::add(Sequence sequence) {
  if (sequences_.size() >= kMaxSequences)
    throw std::invalid_argument(std::to_string(kMaxSequences) + " sequences are open, the limit; close some first");
  sequences_.emplace(next_id_, std::move(sequence));
  return next_id_++;
}

int64_t KvCache::open() { return add({}); }

int64_t KvCache::fork(int64_t id) { return add(without_tree(id)); }

void KvCache::close(int64_t id) {
  at(id);
  sequences_.erase(id);
}

Sequence& KvCache::at(int64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end())
    throw std::invalid_argument("sequence " + std::to_string(id) + " is not open; open_sequence() gives ids");
  return found->second;
}

Sequence& KvCache::without_tree(int64_t id) {
  Sequence& sequence = at(id);
  if (sequence.has_tree)
    throw std::invalid_argument("sequence " + std::to_string(id) + " holds a tree; keep a path of it, or crop, first");
  return sequence;
}

void KvCache::crop(int64_t id, int64_t length) {
  Sequence& sequence = at(id);
  check_range("the length to crop to", length, 0, sequence.has_tree ? sequence.tree : sequence.length,
              "a sequence can only be cropped to what it holds, and one with a tree to what it held before");
  for (int64_t i = std::max<int64_t>(length - window_, kChunkPositions) / kChunkPositions; i < chunks_for(length); ++i)
    if (sequence.chunks[i] == nullptr)
      throw std::invalid_argument("sequence " + std::to_string(id) + " cannot be cropped to " + std::to_string(length) +
                                  ", since it has forgotten what lies before; open a new one");
  sequence.length = length;
  sequence.has_tree = false;
  // One chunk more than needed stays, lest a sequence that goes to and fro at a boundary allocates every time.
  const size_t kept = std::min<size_t>(sequence.chunks.size(), chunks_for(length) + 1);
  sequence.chunks.resize(kept);
  sequence.chunk_data.resize(kept);
}

void KvCache::reserve(Sequence& sequence, int64_t length) const {
  const size_t needed = chunks_for(length);
  sequence.chunks.reserve(needed);
  sequence.chunk_data.reserve(needed);
  const size_t bytes = chunk_elements_ * sizeof(int16_t);
  for (size_t i = sequence.length / kChunkPositions; i < needed; ++i) {
    if (i < sequence.chunks.size() && sequence.chunks[i].use_count() == 1) continue;
    auto chunk = std::make_shared<AlignedBuffer>(bytes, Pages::kSmall);  // others wait for a sequence that grows
    if (i == sequence.chunks.size()) {
      sequence.chunks.emplace_back();
      sequence.chunk_data.push_back(nullptr);
    } else if (static_cast<int64_t>(i) * kChunkPositions < sequence.length) {
      std::memcpy(chunk->as<int16_t>(), sequence.chunk_data[i], bytes);
    }
    sequence.chunk_data[i] = chunk->as<int16_t>();
    sequence.chunks[i] = std::move(chunk);
  }
  if (window_ > 0) forget(sequence);
}

// Some of what the next query will not see stays, lest a sequence that is cropped a little misses it.
void KvCache::forget(Sequence& sequence) const {
  const int64_t seen = sequence.length - window_ - kChunkPositions;
  for (int64_t i = 1; (i + 1) * kChunkPositions <= seen; ++i) {
    sequence.chunks[i] = nullptr;
    sequence.chunk_data[i] = nullptr;
  }
}

int64_t KvCache::bytes() const {
  std::set<const AlignedBuffer*> chunks;
  for (const auto& [id, sequence] : sequences_)
    for (const auto& chunk : sequence.chunks) chunks.insert(chunk.get());
  chunks.erase(nullptr);
  return static_cast<int64_t>(chunks.size() * chunk_elements_ * sizeof(int16_t));
}

}  // namespace outrider
