// One pass of a model over some rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "aligned.h"
#include "matmul/matmul.h"
#include "model/barrier.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "thread_pool.h"

namespace outrider {

// A token at its place. Rows of one sequence stand together, in the order of their slots, those with logits last; its
// cache has room for them and holds everything before them.
struct Row {
  const Sequence* sequence;
  AttentionRow place;
  int64_t slot;
  int64_t token;
  bool wants_logits;
};

// The steps of a layer share the work out by heads or columns, never within a sum; between steps the threads meet at a
// barrier. What a row goes through depends on its token and context alone.
class Executor {
 public:
  static constexpr int64_t kMaxRows = 256;  // bounds the buffers; more rows come in several passes, to the same bits

  // All arguments must outlive the executor; the weights must be finished.
  Executor(const ModelConfig& config, const Weights& weights, const KvCache& cache, ThreadPool& pool, Isa isa);

  // At most kMaxRows rows. Writes the keys and values of all rows to the caches and [rows that want logits,
  // vocab_size] to logits.
  void run(std::span<const Row> rows, float* logits);
  // Copies the keys and values of one slot of a cache to another.
  void copy(const Sequence& sequence, int64_t from, int64_t to) const;

 private:
  // [kMaxRows, stride] each; strides are multiples of 16 and what lies beyond a row's values is zero.
  struct Matrix {
    explicit Matrix(int64_t width) : stride(padded(width)), buffer(kMaxRows * stride * sizeof(float)) {}
    float* row(int64_t r) { return buffer.as<float>() + r * stride; }
    const float* row(int64_t r) const { return buffer.as<float>() + r * stride; }
    int64_t stride;
    AlignedBuffer buffer;
  };

  // The rows that take part in a step: all of them, or those with logits once the last layer's cache is written.
  struct Selection {
    std::vector<int64_t> rows;  // indices of rows of the pass
    struct Task {
      AttentionTask attention;
      int64_t kv_head;
    };
    std::vector<Task> tasks;
  };
  int16_t* block_of(const Sequence& sequence, int64_t slot, int64_t layer, int64_t kv_head) const;
  Selection select(std::span<const Row> rows, bool all);
  void add_tasks(Selection& selection, std::span<const Row> rows, int64_t begin, int64_t end, int64_t num_runs);

  // Every function below is one thread's share; `thread` says whose.
  void embed(std::span<const Row> rows, int thread);
  // sum = the given rows of x + delta, or of x + norm(delta) * delta_weight if that is not empty; normed = norm(sum) *
  // weight, quantised if asked for.
  void add_and_norm(std::span<const int64_t> rows, const Matrix& x, const Matrix& delta,
                    const std::vector<float>& delta_weight, Matrix& sum, const std::vector<float>& weight,
                    bool quantise, int thread);
  void keys_and_values(std::span<const Row> rows, int64_t layer, int thread);
  void rotate_and_store(std::span<const Row> rows, int64_t layer, int thread);
  // Bias, norm and rotation of one head of q or k; the first two where the model has them.
  void prepare_head(float* x, const float* bias, const std::vector<float>& norm, int64_t row, int64_t layer,
                    float scale);
  void attend_and_project(const Selection& selection, int64_t layer, int thread);
  void feed_forward(const Selection& selection, int64_t layer, int thread);
  // From normed_ to [rows, vocab_size], by way of head_ where the head is cut.
  void project_to_logits(float* logits, int thread);
  void multiply(std::span<const MatmulJob> jobs, const Activations& x, int thread);
  Span columns_of(const Activations& x, int thread) const;

  const ModelConfig& config_;
  const Weights& weights_;
  const KvCache& cache_;
  ThreadPool& pool_;
  const Isa isa_;
  const Ops& ops_;
  Barrier barrier_;
  std::atomic<int64_t> next_task_{0};

  Matrix residual_, after_attention_;  // the residual stream before and between the two halves of a layer
  Matrix projected_;                   // what comes next in it
  Matrix q_, k_, v_, gate_, up_;
  int64_t q_stride_;
  AlignedBuffer q_codes_;  // [kMaxRows, num_heads, padded head_dim] of 16 bits
  Matrix q_scales_;        // by head
  std::vector<AttentionRow> places_;
  // Cosines and sines of the rows' positions: those of layers without a window and, if they differ, of those with one.
  struct Rotation {
    explicit Rotation(const std::vector<double>& inv_freq);
    void set(int64_t row, int64_t position);
    const std::vector<double>& inv_freq;
    Matrix cos, sin;
  };
  std::vector<Rotation> rotations_;
  Activations normed_, attended_, gated_;
  AlignedBuffer head_;                  // [rows, tokens of a cut head]
  std::vector<AlignedBuffer> scratch_;  // one per thread
  std::vector<int64_t> in_order_;       // 0 .. kMaxRows - 1
};

}  // namespace outrider
