// Attention of some queries over one key-value head; included once per instruction set.
//
// A query takes its positions in blocks of 64, in order. Within a block: the products with the keys, the largest so
// far, the exponentials, then the weighted values. Both products are sums of products of 16-bit integers, exact in 32
// bits, so their order is free; everything else has one order. None of this depends on the other queries, so it does
// not matter which of them are worked on together. Up to kTile of them are, so that a key or value read once serves
// them all.
// The running largest value and sum are those of Milakov and Gimelshein, https://arxiv.org/abs/1805.02867.
#pragma once

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/vec.h"

namespace outrider {
namespace {

constexpr int kTile = 6;
#if defined(__AVX512F__)
constexpr int kWide = 4;  // vectors side by side: kTile * kWide sums fill the registers
#else
constexpr int kWide = 1;
#endif
constexpr float kLeastSum = 1e-30f;  // what weighs less is nothing: its inverse would overflow

struct Query {
  const int16_t* codes;
  float scale;
  float* sum;    // [padded head_dim] weighted values so far
  float* total;  // [16] exponentials so far, by lane
  float* largest;
  int64_t begin, end;  // positions of the block that it sees, 0 <= begin < end <= 64
};

// What one query makes of the values of a block: sum = sum * factor + scale * (codes . value codes).
struct Weights {
  alignas(64) int16_t codes[kBlockPositions];
  float scale;
  Vec factor;
};

// A block of the cache, and the one that is fetched from memory meanwhile: the same when there is nothing to fetch.
struct Block {
  const int16_t* data;
  const int16_t* next;
};

// scores[i][j] = q_i . key_j for 16 * Wide positions from the given one on.
template <int Q, int Wide>
void key_products(const Query* queries, Block block, int64_t head_dim, int64_t position,
                  float (*scores)[kBlockPositions]) {
  const float* scales = key_scales(block.data) + position;
  const int16_t* keys = key_codes(block.data) + 2 * position;
  const int16_t* next = key_codes(block.next) + 2 * position;
  Ints sums[Q][Wide];
  for (auto& row : sums)
    for (Ints& sum : row) sum = no_ints();
  for (int64_t d = 0; d < head_dim; d += 2, keys += 2 * kBlockPositions, next += 2 * kBlockPositions) {
    Pairs key[Wide];
    for (int w = 0; w < Wide; ++w) {
      __builtin_prefetch(next + 2 * w * kLanes);
      key[w] = load_pairs(keys + 2 * w * kLanes);
    }
    for (int i = 0; i < Q; ++i) {
      const Pairs q = splat_pair(queries[i].codes + d);
      for (int w = 0; w < Wide; ++w) sums[i][w] = add_products(sums[i][w], key[w], q);
    }
  }
  for (int w = 0; w < Wide; ++w) {
    const Vec scale = load(scales + w * kLanes);
    for (int i = 0; i < Q; ++i)
      store(scores[i] + position + w * kLanes, mul(to_floats(sums[i][w]), mul(scale, splat(queries[i].scale))));
  }
}

inline void blank(const Query& query, float value, float* positions) {
  for (int64_t j = 0; j < query.begin; ++j) positions[j] = value;
  for (int64_t j = query.end; j < kBlockPositions; ++j) positions[j] = value;
}

inline Vec sum_of_four(const float* x) { return add(add(load(x), load(x + 16)), add(load(x + 32), load(x + 48))); }

// Turns scores into weights relative to each query's largest so far. Those of positions that it does not see, whatever
// lies there, are exactly zero. Step by step for all queries, since each step of one waits for the step before.
template <int Q>
void weigh(const Query* queries, const float* value_scales, float (*scores)[kBlockPositions], Weights* weights) {
  float largest[Q], sums[Q];
  bool partial[Q];
  for (int i = 0; i < Q; ++i) {
    partial[i] = queries[i].begin > 0 || queries[i].end < kBlockPositions;
    if (partial[i]) blank(queries[i], -kInfinity, scores[i]);
    const float* s = scores[i];
    const float in_block = max_of_lanes(max(max(load(s), load(s + 16)), max(load(s + 32), load(s + 48))));
    const float before = *queries[i].largest;
    largest[i] = in_block > before ? in_block : before;
    weights[i].factor = splat(before - largest[i]);
    *queries[i].largest = largest[i];
  }
  for (int i = 0; i < Q; ++i) {
    weights[i].factor = exp(weights[i].factor);
    for (int j = 0; j < kBlockPositions; j += kLanes)
      store(scores[i] + j, exp(sub(load(scores[i] + j), splat(largest[i]))));
    if (partial[i]) blank(queries[i], 0.0f, scores[i]);
    store(queries[i].total, fma(load(queries[i].total), weights[i].factor, sum_of_four(scores[i])));
  }
  for (int i = 0; i < Q; ++i) {
    for (int j = 0; j < kBlockPositions; j += kLanes)
      store(scores[i] + j, mul(load(scores[i] + j), load(value_scales + j)));
    if (partial[i]) blank(queries[i], 0.0f, scores[i]);
    sums[i] = sum_of_lanes(sum_of_four(scores[i]));
  }
  for (int i = 0; i < Q; ++i) {
    weights[i].scale = sums[i] / kCodeNorm;
    if (sums[i] >= kLeastSum && sums[i] < kInfinity) {
      const Vec inverse = splat(kCodeNorm / sums[i]);
      for (int j = 0; j < kBlockPositions; j += kLanes)
        store_rounded(weights[i].codes + j, mul(load(scores[i] + j), inverse));
    } else {
      weights[i].scale = sums[i] < kLeastSum ? 0.0f : __builtin_nanf("");
      std::memset(weights[i].codes, 0, sizeof weights[i].codes);
    }
  }
}

// Adds the values of positions [begin, end), both even, for 16 * Wide elements of the head.
template <int Q, int Wide>
void add_values(const Query* queries, Block block, int64_t head_dim, const Weights* weights, int64_t begin, int64_t end,
                int64_t element) {
  const int64_t stride = padded(head_dim);
  const int16_t* values = value_codes(block.data, head_dim) + begin * stride + 2 * element;
  const int16_t* next = value_codes(block.next, head_dim) + begin * stride + 2 * element;
  Ints sums[Q][Wide];
  for (auto& row : sums)
    for (Ints& sum : row) sum = no_ints();
  for (int64_t j = begin; j < end; j += 2, values += 2 * stride, next += 2 * stride) {
    Pairs value[Wide];
    for (int w = 0; w < Wide; ++w) {
      __builtin_prefetch(next + 2 * w * kLanes);
      value[w] = load_pairs(values + 2 * w * kLanes);
    }
    for (int i = 0; i < Q; ++i) {
      const Pairs weight = splat_pair(weights[i].codes + j);
      for (int w = 0; w < Wide; ++w) sums[i][w] = add_products(sums[i][w], value[w], weight);
    }
  }
  for (int i = 0; i < Q; ++i) {
    const Vec scale = splat(weights[i].scale);
    for (int w = 0; w < Wide; ++w) {
      float* sum = queries[i].sum + element + w * kLanes;
      store(sum, fma(to_floats(sums[i][w]), scale, mul(load(sum), weights[i].factor)));
    }
  }
}

// One block for Q queries.
template <int Q>
void attend_tile(const Query* queries, Block block, int64_t head_dim) {
  alignas(64) float scores[Q][kBlockPositions];
  Weights weights[Q];
  int64_t begin = kBlockPositions, end = 0;
  for (int i = 0; i < Q; ++i) {
    begin = queries[i].begin < begin ? queries[i].begin : begin;
    end = queries[i].end > end ? queries[i].end : end;
  }
  for (int j = 0; j < kHeaderElements; j += 32) __builtin_prefetch(block.next + j);
  constexpr int64_t kStep = kLanes * kWide;
  for (int64_t j = begin / kStep * kStep; j < end; j += kStep)
    key_products<Q, kWide>(queries, block, head_dim, j, scores);
  weigh<Q>(queries, value_scales(block.data), scores, weights);

  int64_t d = 0;
  const int64_t width = padded(head_dim);
  begin = begin / 2 * 2;
  end = (end + 1) / 2 * 2;
  for (; d + kStep <= width; d += kStep) add_values<Q, kWide>(queries, block, head_dim, weights, begin, end, d);
  for (; d < width; d += kLanes) add_values<Q, 1>(queries, block, head_dim, weights, begin, end, d);
}

void attend_some(const Query* queries, int64_t count, Block block, int64_t head_dim) {
  static_assert(kTile == 6);
  switch (count) {
    case 0: return;
    case 1: return attend_tile<1>(queries, block, head_dim);
    case 2: return attend_tile<2>(queries, block, head_dim);
    case 3: return attend_tile<3>(queries, block, head_dim);
    case 4: return attend_tile<4>(queries, block, head_dim);
    case 5: return attend_tile<5>(queries, block, head_dim);
    default: return attend_tile<6>(queries, block, head_dim);
  }
}

// The queries of a task: what each is, all the positions that it sees, and what it has seen so far.
struct Queries {
  explicit Queries(const AttentionTask& t, float* scratch) : task(t), count(t.end - t.begin) {
    const int64_t width = padded(t.head_dim);
    float* sums = scratch;
    float* totals = sums + count * width;
    for (int64_t i = 0; i < count * (width + kLanes); ++i) scratch[i] = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = (t.begin + i) / t.group, head = (t.begin + i) % t.group, position = t.rows[at].position;
      const int64_t first = t.window > 0 && position >= t.window ? position - t.window + 1 : 0;
      largest[i] = -kInfinity;
      rows[i] = t.rows + at;
      all[i] = {t.q + at * t.q_stride + head * width, t.q_scales[at * t.q_scales_stride + head],
                sums + i * width, totals + i * kLanes, largest + i, first, position + 1};
    }
  }

  const int16_t* block(int64_t b) const {
    return task.chunks[b / kBlocksPerChunk] + task.chunk_offset + b % kBlocksPerChunk * block_elements(task.head_dim);
  }
  // Whether query i finds all that it sees of block b where the positions say.
  bool in_place(int64_t i, int64_t b) const {
    return rows[i]->in_place > rows[i]->position || (b + 1) * kBlockPositions <= rows[i]->in_place;
  }
  // Appends query i to a tile if it sees any of block b.
  void add_if_seeing(int64_t i, int64_t b, Query* tile, int64_t& used) const {
    const int64_t window = b == 0 && task.sees_start ? 0 : all[i].begin;
    const int64_t begin = window - b * kBlockPositions, end = all[i].end - b * kBlockPositions;
    if (begin >= kBlockPositions || end <= 0) return;
    Query& query = tile[used++] = all[i];
    query.begin = begin > 0 ? begin : 0;
    query.end = end < kBlockPositions ? end : kBlockPositions;
  }

  const AttentionTask& task;
  const int64_t count;
  float largest[kMaxTaskQueries];
  const AttentionRow* rows[kMaxTaskQueries];
  Query all[kMaxTaskQueries];
};

// Block b as a node of a tree sees it: its ancestors, and itself, at their positions.
void assemble(const Queries& queries, const AttentionRow& row, int64_t b, int16_t* block) {
  const int64_t head_dim = queries.task.head_dim, first = b * kBlockPositions;
  if (first < row.in_place)
    std::memcpy(block, queries.block(b), static_cast<size_t>(block_elements(head_dim)) * sizeof *block);
  int64_t node = row.node;
  for (int64_t position = row.position; position >= row.in_place && position >= first; --position) {
    const int64_t slot = row.tree + node;
    if (position < first + kBlockPositions)
      copy_slot(queries.block(slot / kBlockPositions), slot % kBlockPositions, head_dim, block, position - first);
    node = row.parents[node];
  }
}

// The blocks in which a node's ancestors lie elsewhere, node by node: few beside those that all nodes share.
void attend_to_ancestors(const Queries& queries, int16_t* scratch) {
  for (int64_t begin = 0, end = 0; begin < queries.count; begin = end) {
    const AttentionRow& row = *queries.rows[begin];
    while (end < queries.count && queries.rows[end] == &row) ++end;
    const int64_t first = queries.all[begin].begin > row.in_place ? queries.all[begin].begin : row.in_place;
    for (int64_t b = first / kBlockPositions; b * kBlockPositions <= row.position; ++b) {
      if (queries.in_place(begin, b)) break;  // all of it is
      assemble(queries, row, b, scratch);
      for (int64_t i = begin; i < end; i += kTile) {
        Query tile[kTile];
        int64_t used = 0;
        for (int64_t j = i; j < end && j < i + kTile; ++j) queries.add_if_seeing(j, b, tile, used);
        attend_some(tile, used, {scratch, scratch}, queries.task.head_dim);
      }
    }
  }
}

void attend(const AttentionTask& task, float* scratch) {
  const Queries queries(task, scratch);
  int64_t begin = INT64_MAX, end = 0;  // blocks
  for (int64_t i = 0; i < queries.count; ++i) {
    const int64_t first = queries.all[i].begin / kBlockPositions, last = queries.rows[i]->position / kBlockPositions;
    begin = first < begin ? first : begin;
    end = last + 1 > end ? last + 1 : end;
  }
  const int64_t num_tiles = (queries.count + kTile - 1) / kTile;
  for (int64_t b = task.sees_start ? 0 : begin, next = 0; b < end; b = next) {
    next = b + 1 < begin ? begin : b + 1;
    Block block{queries.block(b), queries.block(next < end ? next : b)};
    for (int64_t t = 0; t < num_tiles; ++t) {
      Query tile[kTile];
      int64_t used = 0;
      for (int64_t i = queries.count * t / num_tiles; i < queries.count * (t + 1) / num_tiles; ++i)
        if (queries.in_place(i, b)) queries.add_if_seeing(i, b, tile, used);
      if (used == 0) continue;
      attend_some(tile, used, block, task.head_dim);
      block.next = block.data;
    }
  }
  const int64_t width = padded(task.head_dim);
  attend_to_ancestors(queries, reinterpret_cast<int16_t*>(scratch + kMaxTaskQueries * (width + 32)));

  for (int64_t i = 0; i < queries.count; ++i) {
    const int64_t row = (task.begin + i) / task.group, head = (task.begin + i) % task.group;
    float* out = task.out + row * task.out_stride + head * task.head_dim;
    const float total = sum_of_lanes(load(queries.all[i].total));
    for (int64_t d = 0; d < task.head_dim; ++d) out[d] = queries.all[i].sum[d] / total;
  }
}

}  // namespace
}  // namespace outrider
