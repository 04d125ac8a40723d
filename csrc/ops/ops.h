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
constexpr int64_t kMaxHeadDim = 1024;
constexpr int kChunkPositions = kBlockPositions * kBlocksPerChunk;
constexpr int64_t kMaxTaskQueries = 96;  // queries of one attention task: their sums stay in the second-level cache

constexpr int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

// Keys and values are held as 16-bit codes with a scale for each position and head, such that the codes' Euclidean norm
// is at most kCodeNorm and a little for rounding. So the product of two heads, and that of weights which sum to
// kCodeNorm with the values, is exact in 32 bits.
constexpr float kCodeNorm = 32700.0f;
// One block of one key-value head, in elements of 16 bits: the scales of the keys and of the values, 64 floats each;
// the keys' codes as [head_dim / 2][64][2]; the values' codes as [32][padded head_dim][2].
constexpr int64_t kHeaderElements = 4 * kBlockPositions;
constexpr int64_t block_elements(int64_t head_dim) {
  return kHeaderElements + kBlockPositions * (head_dim + padded(head_dim));
}

// A row of a pass as attention sees it. It sees the positions up to its own: those before `in_place` in the slots of
// the same number; the others, in a tree, in slot `tree + node`, then that of the node's parent, and so on.
struct AttentionRow {
  int64_t position;
  int64_t in_place = position + 1;
  int64_t tree = 0, node = 0;
  const int64_t* parents = nullptr;
};

// Some queries of one sequence against one key-value head. Query i belongs to row i / group of the sequence's rows in
// this pass, and to query head i % group of the key-value head.
struct AttentionTask {
  const int16_t* const* chunks;  // the sequence's cache
  int64_t chunk_offset;          // where this layer's and head's blocks begin in every chunk
  int64_t head_dim;
  int64_t group;
  int64_t window;  // how many positions a query sees, its own the last of them; 0 for all
  bool sees_start = false;  // the first block, too, whatever the window
  const AttentionRow* rows;
  int64_t begin, end;  // queries, at most kMaxTaskQueries of them
  const int16_t* q;    // head 0 of the group in row 0, heads side by side, each padded
  int64_t q_stride;    // from row to row
  const float* q_scales;  // by head likewise, so that scores are scaled already
  int64_t q_scales_stride;
  float* out;  // by head, not padded
  int64_t out_stride;
};
// Floats of scratch that attend() needs.
constexpr int64_t attention_scratch(int64_t head_dim) {
  return kMaxTaskQueries * (padded(head_dim) + 32) + block_elements(head_dim) / 2;
}

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
  // Codes of n values (not padded), with zeros behind them up to the padded length; the scale is returned. Values that
  // are not finite, or whose squares are not, make it NaN.
  float (*quantise_head)(const float* x, int64_t n, int16_t* codes);
  // Puts one head's key and value (not padded) at a slot of a block, the value with zeros behind it.
  void (*write_cache)(const float* k, const float* v, int64_t head_dim, int16_t* block, int64_t slot);
  void (*copy_slot)(const int16_t* from, int64_t from_slot, int64_t head_dim, int16_t* to, int64_t to_slot);
  void (*attend)(const AttentionTask& task, float* scratch);
};

const Ops& ops_for(Isa isa);

}  // namespace outrider
