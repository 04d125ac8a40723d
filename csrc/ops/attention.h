// Attention of some queries over one key-value head; included once per instruction set.
//
// A query takes its positions in blocks of 64, in order. Within a block: the products with the keys (summed over the
// head's elements in order, a position per lane), the largest so far, the exponentials, then the weighted values in
// order of position. None of this depends on the other queries, so it does not matter which of them are worked on
// together. Up to kTile of them are, so that a key or value read and widened once serves them all.
// The running largest value and sum are those of Milakov and Gimelshein, https://arxiv.org/abs/1805.02867.
#pragma once

#include "ops/ops.h"
#include "ops/vec.h"

namespace outrider {
namespace {

constexpr int kTile = 6;
#if defined(__AVX512F__)
constexpr int kWide = 4;  // vectors side by side: kTile * kWide sums fill the registers
#else
constexpr int kWide = 1;
#endif

struct Query {
  const float* q;
  float* sum;    // [padded head_dim] weighted values so far
  float* total;  // [16] exponentials so far, by lane
  float* largest;
  int64_t first, visible;  // it sees positions [first, visible) of the block, one at least
};

// A block of the cache, and the one that is fetched from memory meanwhile: the same when there is nothing to fetch.
struct Block {
  const uint16_t* data;
  const uint16_t* next;
};

// scores[i][j] = q_i . key_j for 16 * Wide positions from the given one on.
template <int Q, int Wide>
void key_products(const Query* queries, Block block, int64_t head_dim, int64_t position,
                  float (*scores)[kBlockPositions]) {
  const uint16_t* keys = block.data + position;
  const uint16_t* next = block.next + position;
  Vec sums[Q][Wide];
  for (auto& row : sums)
    for (Vec& sum : row) sum = splat(0.0f);
  for (int64_t d = 0; d < head_dim; ++d, keys += kBlockPositions, next += kBlockPositions) {
    for (int w = 0; w < Wide; w += 2) __builtin_prefetch(next + w * kLanes);
    Vec key[Wide];
    for (int w = 0; w < Wide; ++w) key[w] = load_f16(keys + w * kLanes);
    for (int i = 0; i < Q; ++i) {
      const Vec q = splat(queries[i].q[d]);
      for (int w = 0; w < Wide; ++w) sums[i][w] = fma(q, key[w], sums[i][w]);
    }
  }
  for (int i = 0; i < Q; ++i)
    for (int w = 0; w < Wide; ++w) store(scores[i] + position + w * kLanes, sums[i][w]);
}

// Turns a query's scores into exponentials relative to the largest so far, and brings its sums to the same base. What
// positions out of its sight add to the total, e^-87, vanishes beside the 1 of the largest.
void exponentiate(const Query& query, int64_t head_dim, float* scores) {
  for (int64_t j = 0; j < query.first; ++j) scores[j] = -kInfinity;
  for (int64_t j = query.visible; j < kBlockPositions; ++j) scores[j] = -kInfinity;
  const Vec largest_by_lane = max(max(load(scores), load(scores + 16)), max(load(scores + 32), load(scores + 48)));
  const float before = *query.largest;
  const float in_block = max_of_lanes(largest_by_lane);
  const float largest = in_block > before ? in_block : before;
  *query.largest = largest;

  for (int j = 0; j < kBlockPositions; j += kLanes) store(scores + j, exp(sub(load(scores + j), splat(largest))));
  const Vec added = add(add(load(scores), load(scores + 16)), add(load(scores + 32), load(scores + 48)));
  if (largest == before) {  // the factor would be exactly one
    store(query.total, add(load(query.total), added));
    return;
  }
  const Vec factor = exp(splat(before - largest));
  store(query.total, fma(load(query.total), factor, added));
  for (int64_t d = 0; d < head_dim; d += kLanes) store(query.sum + d, mul(load(query.sum + d), factor));
}

// sum_i += weight_ij value_j for positions [begin, end) in order, for 16 * Wide elements of the head.
template <int Q, int Wide>
void add_values(const Query* queries, Block values, int64_t value_stride, const float (*weights)[kBlockPositions],
                int64_t begin, int64_t end, int64_t element) {
  Vec sums[Q][Wide];
  for (int i = 0; i < Q; ++i)
    for (int w = 0; w < Wide; ++w) sums[i][w] = load(queries[i].sum + element + w * kLanes);
  for (int64_t j = begin; j < end; ++j) {
    const int64_t offset = j * value_stride + element;
    for (int w = 0; w < Wide; w += 2) __builtin_prefetch(values.next + offset + w * kLanes);
    Vec value[Wide];
    for (int w = 0; w < Wide; ++w) value[w] = load_f16(values.data + offset + w * kLanes);
    for (int i = 0; i < Q; ++i) {
      const Vec weight = splat(weights[i][j]);
      for (int w = 0; w < Wide; ++w) sums[i][w] = fma(weight, value[w], sums[i][w]);
    }
  }
  for (int i = 0; i < Q; ++i)
    for (int w = 0; w < Wide; ++w) store(queries[i].sum + element + w * kLanes, sums[i][w]);
}

template <int Q>
void add_all_values(const Query* queries, Block values, int64_t value_stride,
                    const float (*weights)[kBlockPositions], int64_t begin, int64_t end) {
  if (begin >= end) return;
  int64_t d = 0;
  for (; d + kLanes * kWide <= value_stride; d += kLanes * kWide)
    add_values<Q, kWide>(queries, values, value_stride, weights, begin, end, d);
  for (; d < value_stride; d += kLanes) add_values<Q, 1>(queries, values, value_stride, weights, begin, end, d);
}

// One block for Q queries in order of position: neither what they see first nor what they see last goes back.
template <int Q>
void attend_tile(const Query* queries, Block block, int64_t head_dim) {
  alignas(64) float scores[Q][kBlockPositions];
  const int64_t value_stride = padded(head_dim), values_begin = head_dim * kBlockPositions;
  for (int64_t j = 0; j < queries[Q - 1].visible; j += kLanes * kWide)
    key_products<Q, kWide>(queries, block, head_dim, j, scores);
  for (int i = 0; i < Q; ++i) exponentiate(queries[i], value_stride, scores[i]);

  const Block values{block.data + values_begin, block.next + values_begin};
  const int64_t begin = queries[Q - 1].first, end = begin < queries[0].visible ? queries[0].visible : begin;
  for (int i = 0; i < Q; ++i) {
    const int64_t before = queries[i].visible < begin ? queries[i].visible : begin;
    add_all_values<1>(queries + i, values, value_stride, scores + i, queries[i].first, before);
  }
  add_all_values<Q>(queries, values, value_stride, scores, begin, end);  // what all see, if anything
  for (int i = 0; i < Q; ++i)
    add_all_values<1>(queries + i, values, value_stride, scores + i, end, queries[i].visible);
}

void attend_some(const Query* queries, int64_t count, Block block, int64_t head_dim) {
  static_assert(kTile == 6);
  switch (count) {
    case 1: return attend_tile<1>(queries, block, head_dim);
    case 2: return attend_tile<2>(queries, block, head_dim);
    case 3: return attend_tile<3>(queries, block, head_dim);
    case 4: return attend_tile<4>(queries, block, head_dim);
    case 5: return attend_tile<5>(queries, block, head_dim);
    default: return attend_tile<6>(queries, block, head_dim);
  }
}

void attend(const AttentionTask& task, float* scratch) {
  const int64_t count = task.end - task.begin, width = padded(task.head_dim);
  float* sums = scratch;
  float* totals = sums + count * width;
  float* largest = totals + count * kLanes;
  for (int64_t i = 0; i < count * (width + kLanes); ++i) scratch[i] = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest[i] = -kInfinity;

  const int64_t last_position = task.first_position + (task.end - 1) / task.group;
  const int64_t num_tiles = (count + kTile - 1) / kTile;
  const int64_t num_blocks = last_position / kBlockPositions + 1;
  const auto block_at = [&](int64_t b) {
    return task.chunks[b / kBlocksPerChunk] + task.chunk_offset + b % kBlocksPerChunk * block_elements(task.head_dim);
  };
  const auto first_seen = [&](int64_t position) {
    return task.window > 0 && position >= task.window ? position - task.window + 1 : 0;
  };
  const int64_t first_position = task.first_position + task.begin / task.group;
  for (int64_t b = first_seen(first_position) / kBlockPositions; b < num_blocks; ++b) {
    Block block{block_at(b), b + 1 < num_blocks ? block_at(b + 1) : block_at(b)};
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      Query queries[kTile];
      int64_t used = 0;
      for (int64_t i = count * tile / num_tiles; i < count * (tile + 1) / num_tiles; ++i) {
        const int64_t row = (task.begin + i) / task.group, head = (task.begin + i) % task.group;
        const int64_t position = task.first_position + row, first = first_seen(position) - b * kBlockPositions;
        const int64_t visible = position + 1 - b * kBlockPositions;
        if (visible <= 0 || first >= kBlockPositions) continue;
        queries[used++] = {task.q + row * task.q_stride + head * task.head_dim, sums + i * width, totals + i * kLanes,
                           largest + i, first > 0 ? first : 0, visible < kBlockPositions ? visible : kBlockPositions};
      }
      if (used == 0) continue;
      attend_some(queries, used, block, task.head_dim);
      block.next = block.data;
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = (task.begin + i) / task.group, head = (task.begin + i) % task.group;
    float* out = task.out + row * task.out_stride + head * task.head_dim;
    const float total = sum_of_lanes(load(totals + i * kLanes));
    for (int64_t d = 0; d < task.head_dim; ++d) out[d] = sums[i * width + d] / total;
  }
}

}  // namespace
}  // namespace outrider
