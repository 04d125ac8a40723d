// Everything in a pass that is not a matrix product, one row or one head at a time.
//
// Each function exists once per instruction set, with the same bits. None depends on how many rows a pass has.
// Rows of floats are padded with zeros to a multiple of 16; `n` may be the padded length unless said otherwise.
#pragma once

#include <cstdint>

#include "isa.h"

namespace outrider {

constexpr int kBlockPositions = 64;  // positions of the cache that attention takes at a time
constexpr int kBlocksPerChunk = 4;   // blocks that a sequence's cache grows by
constexpr int kChunkPositions = kBlockPositions * kBlocksPerChunk;
constexpr int64_t kMaxTaskQueries = 96;  // queries of one attention task: their sums stay in the second-level cache

constexpr int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }
// Half-precision elements of one block of one key-value head: keys as [head_dim][64], values as [64][padded head_dim].
constexpr int64_t block_elements(int64_t head_dim) { return kBlockPositions * (head_dim + padded(head_dim)); }

// Some queries of one sequence against one key-value head. Query i belongs to row i / group of the sequence's rows in
// this pass, and to query head i % group of the key-value head; it sees the positions up to first_position + i / group, all or the last `window`.
struct AttentionTask {
  const uint16_t* const* chunks;  // the sequence's cache
  int64_t chunk_offset;           // where this layer's and head's blocks begin in every chunk
  int64_t head_dim;
  int64_t group;
  int64_t window;  // how many positions a query sees, its own the last of them; 0 for all
  int64_t first_position;
  int64_t begin, end;  // queries, at most kMaxTaskQueries of them
  const float* q;      // head 0 of the group in row 0, heads side by side, already scaled
  int64_t q_stride;    // from row to row
  float* out;          // as q
  int64_t out_stride;
};
// Floats of scratch that attend() needs.
constexpr int64_t attention_scratch(int64_t head_dim) { return kMaxTaskQueries * (padded(head_dim) + 32); }

struct Ops {
  // 1 / sqrt(mean(x^2) + eps) over n values, not padded.
  float (*rms_scale)(const float* x, int64_t n, float eps);
  // y = x * scale * weight
  void (*scale)(const float* x, float scale, const float* weight, int64_t n, float* y);
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  // y = gate / (1 + e^-gate) * up; n is a multiple of 16.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y);
  // y = gate / (1 + e^-2u) * up with u = sqrt(2 / pi) (gate + 0.044715 gate^3), which is the approximation of GELU by tanh
  // (Hendrycks and Gimpel, https://arxiv.org/abs/1606.08415); n is a multiple of 16.
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* y);
  // Rotates x[i] with x[i + half] for i < half by the given angles, then multiplies all n values (not padded) by scale.
  void (*rotate)(float* x, const float* cos, const float* sin, int64_t half, int64_t n, float scale);
  // Puts one head's key and value (not padded) at a slot of a block, the value with zeros behind it.
  void (*write_cache)(const float* k, const float* v, int64_t head_dim, uint16_t* block, int64_t slot);
  void (*attend)(const AttentionTask& task, float* scratch);
};

const Ops& ops_for(Isa isa);

}  // namespace outrider
