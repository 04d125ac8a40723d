#include "model/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace outrider {

Executor::Executor(const ModelConfig& config, const Weights& weights, const KvCache& cache, ThreadPool& pool, Isa isa)
    : config_(config),
      weights_(weights),
      cache_(cache),
      pool_(pool),
      isa_(isa),
      ops_(ops_for(isa)),
      barrier_(pool.num_threads()),
      residual_(config.hidden_size),
      after_attention_(config.hidden_size),
      projected_(config.hidden_size),
      q_(config.q_size()),
      k_(config.kv_size()),
      v_(config.kv_size()),
      gate_(config.intermediate_size),
      up_(config.intermediate_size),
      q_stride_(config.num_heads * padded(config.head_dim)),
      q_codes_(kMaxRows * q_stride_ * sizeof(int16_t)),
      q_scales_(config.num_heads),
      normed_(kMaxRows, config.hidden_size),
      attended_(kMaxRows, config.q_size()),
      gated_(kMaxRows, config.intermediate_size),
      in_order_(kMaxRows) {
  rotations_.emplace_back(config.rope_inv_freq);
  if (!config.windowed_rope_inv_freq.empty()) rotations_.emplace_back(config.windowed_rope_inv_freq);
  const int64_t scratch = std::max(attention_scratch(config.head_dim), residual_.stride);
  for (int i = 0; i < pool.num_threads(); ++i) scratch_.emplace_back(scratch * sizeof(float));
  std::iota(in_order_.begin(), in_order_.end(), 0);
}

void Executor::run(std::span<const Row> rows, float* logits) {
  const int64_t last = config_.num_layers - 1;
  const auto set_rows = [this](int64_t num_rows) {
    normed_.set_shape(num_rows, config_.hidden_size);
    attended_.set_shape(num_rows, config_.q_size());
    gated_.set_shape(num_rows, config_.intermediate_size);
  };

  set_rows(static_cast<int64_t>(rows.size()));
  places_.clear();
  for (const Row& row : rows) places_.push_back(row.place);
  const Selection all = select(rows, true);
  pool_.run([&](int thread) noexcept {
    embed(rows, thread);
    for (int64_t layer = 0; layer <= last; ++layer) {
      keys_and_values(rows, layer, thread);
      if (layer == last) break;
      attend_and_project(all, layer, thread);
      feed_forward(all, layer, thread);
    }
  });

  const Selection wanted = select(rows, false);
  const auto num_wanted = static_cast<int64_t>(wanted.rows.size());
  if (num_wanted == 0) return;
  set_rows(num_wanted);
  const size_t head_bytes = num_wanted * weights_.head_tokens.size() * sizeof(float);
  if (head_bytes > head_.bytes()) head_ = AlignedBuffer(head_bytes);
  pool_.run([&](int thread) noexcept {
    attend_and_project(wanted, last, thread);
    feed_forward(wanted, last, thread);
    add_and_norm({in_order_.data(), wanted.rows.size()}, after_attention_, projected_,
                 weights_.layers[last].ffn_post_norm, residual_, weights_.output_norm, weights_.output.quantised,
                 thread);
    project_to_logits(logits, thread);
  });
}

Executor::Rotation::Rotation(const std::vector<double>& inv_freq)
    : inv_freq(inv_freq), cos(static_cast<int64_t>(inv_freq.size())), sin(static_cast<int64_t>(inv_freq.size())) {}

void Executor::Rotation::set(int64_t row, int64_t position) {
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double angle = static_cast<double>(position) * inv_freq[i];
    cos.row(row)[i] = static_cast<float>(std::cos(angle));
    sin.row(row)[i] = static_cast<float>(std::sin(angle));
  }
}

// --- what is done before the threads start ---------------------------------------------------------------------------

Executor::Selection Executor::select(std::span<const Row> rows, bool all) {
  Selection selection;
  std::vector<std::pair<int64_t, int64_t>> runs;  // [begin, end) of rows of one sequence
  const auto num_rows = static_cast<int64_t>(rows.size());
  for (int64_t r = 0; r < num_rows; ++r) {
    if (!all && !rows[r].wants_logits) continue;
    selection.rows.push_back(r);
    if (!runs.empty() && runs.back().second == r && rows[r].sequence == rows[r - 1].sequence) ++runs.back().second;
    else runs.emplace_back(r, r + 1);
  }
  for (const auto& [begin, end] : runs) add_tasks(selection, rows, begin, end, static_cast<int64_t>(runs.size()));
  return selection;
}

// One task per key-value head; more where they would be too large, too few to go round, or, if there are queries enough
// to fill the kernel's tiles all the same, too few to go round evenly.
void Executor::add_tasks(Selection& selection, std::span<const Row> rows, int64_t begin, int64_t end,
                         int64_t num_runs) {
  const int64_t group = config_.num_heads / config_.num_kv_heads, queries = (end - begin) * group;
  const int64_t heads = num_runs * config_.num_kv_heads, threads = pool_.num_threads();
  int64_t pieces = (queries - 1) / kMaxTaskQueries + 1;
  const auto too_few = [&] {
    const int64_t tasks = heads * pieces;
    return tasks < threads || (tasks < 4 * threads && tasks % threads != 0 && queries / (pieces + 1) >= 6);
  };
  while (pieces < queries && too_few()) ++pieces;
  const auto out = std::lower_bound(selection.rows.begin(), selection.rows.end(), begin) - selection.rows.begin();
  for (int64_t kv_head = 0; kv_head < config_.num_kv_heads; ++kv_head) {
    const int64_t head_begin = kv_head * group * config_.head_dim;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const AttentionTask task{
          .chunks = rows[begin].sequence->chunk_data.data(),
          .chunk_offset = 0,  // that of the layer
          .head_dim = config_.head_dim,
          .group = group,
          .window = 0,  // that of the layer
          .rows = places_.data() + begin,
          .begin = queries * piece / pieces,
          .end = queries * (piece + 1) / pieces,
          .q = q_codes_.as<int16_t>() + begin * q_stride_ + kv_head * group * padded(config_.head_dim),
          .q_stride = q_stride_,
          .q_scales = q_scales_.row(begin) + kv_head * group,
          .q_scales_stride = q_scales_.stride,
          .out = attended_.floats() + out * attended_.stride() + head_begin,
          .out_stride = attended_.stride(),
      };
      selection.tasks.push_back({task, kv_head});
    }
  }
}

int16_t* Executor::block_of(const Sequence& sequence, int64_t slot, int64_t layer, int64_t kv_head) const {
  return sequence.chunk_data[slot / kChunkPositions] + cache_.offset(layer, kv_head) +
         slot % kChunkPositions / kBlockPositions * block_elements(config_.head_dim);
}

void Executor::copy(const Sequence& sequence, int64_t from, int64_t to) const {
  if (from == to) return;
  for (int64_t layer = 0; layer < config_.num_layers; ++layer)
    for (int64_t kv_head = 0; kv_head < config_.num_kv_heads; ++kv_head)
      ops_.copy_slot(block_of(sequence, from, layer, kv_head), from % kBlockPositions, config_.head_dim,
                     block_of(sequence, to, layer, kv_head), to % kBlockPositions);
}

// --- the steps -------------------------------------------------------------------------------------------------------

// A thread's share of the columns of x, whole cache lines of its codes.
Span Executor::columns_of(const Activations& x, int thread) const {
  const Span lines = split(x.stride() / 64, thread, pool_.num_threads());
  return {64 * lines.begin, 64 * lines.end};
}

void Executor::multiply(std::span<const MatmulJob> jobs, const Activations& x, int thread) {
  barrier_.arrive_and_wait();
  matmul(jobs, x, isa_, thread, pool_.num_threads());
  barrier_.arrive_and_wait();
}

// Every thread adds and squares whole rows, which takes less time than meeting again, but keeps only its own columns.
void Executor::add_and_norm(std::span<const int64_t> rows, const Matrix& x, const Matrix& delta,
                            const std::vector<float>& delta_weight, Matrix& sum, const std::vector<float>& weight,
                            bool quantise, int thread) {
  const auto eps = static_cast<float>(config_.norm_eps);
  const Span columns = columns_of(normed_, thread);
  const int64_t begin = columns.begin, count = std::min(columns.end, x.stride) - begin;
  if (count <= 0) return;
  float* whole = scratch_[thread].as<float>();
  for (size_t r = 0; r < rows.size(); ++r) {
    const float* added = delta.row(r);
    if (!delta_weight.empty()) {
      ops_.scale(added, ops_.rms_scale(added, config_.hidden_size, eps), delta_weight.data(), x.stride, whole);
      added = whole;
    }
    ops_.add(x.row(rows[r]), added, x.stride, whole);
    const float scale = ops_.rms_scale(whole, config_.hidden_size, eps);
    std::memcpy(sum.row(r) + begin, whole + begin, count * sizeof(float));
    ops_.scale(whole + begin, scale, weight.data() + begin, count, normed_.floats() + r * normed_.stride() + begin);
  }
  if (quantise) normed_.quantize_columns(columns.begin, columns.end, isa_);
}

void Executor::embed(std::span<const Row> rows, int thread) {
  const Span share = split(static_cast<int64_t>(rows.size()), thread, pool_.num_threads());
  for (int64_t r = share.begin; r < share.end; ++r) {
    float* x = after_attention_.row(r);
    weights_.embed(rows[r].token, x);
    for (int64_t i = 0; i < config_.hidden_size; ++i) x[i] *= static_cast<float>(config_.embedding_scale);
    std::fill_n(projected_.row(r), projected_.stride, 0.0f);
    for (Rotation& rotation : rotations_) rotation.set(r, rows[r].place.position);
  }
  barrier_.arrive_and_wait();
}

void Executor::keys_and_values(std::span<const Row> rows, int64_t layer, int thread) {
  const LayerWeights& w = weights_.layers[layer];
  if (thread == 0) next_task_.store(0, std::memory_order_relaxed);  // used after the barriers below
  static const std::vector<float> kNone;  // nothing comes before the first layer
  add_and_norm({in_order_.data(), rows.size()}, after_attention_, projected_,
               layer == 0 ? kNone : weights_.layers[layer - 1].ffn_post_norm, residual_, w.attn_norm,
               w.attn_q.quantised || w.attn_k.quantised || w.attn_v.quantised, thread);
  const MatmulJob jobs[] = {
      {&w.attn_q, q_.row(0), q_.stride}, {&w.attn_k, k_.row(0), k_.stride}, {&w.attn_v, v_.row(0), v_.stride}};
  multiply(jobs, normed_, thread);
  rotate_and_store(rows, layer, thread);
  barrier_.arrive_and_wait();
}

void Executor::rotate_and_store(std::span<const Row> rows, int64_t layer, int thread) {
  const LayerWeights& w = weights_.layers[layer];
  const int64_t head_dim = config_.head_dim, group = config_.num_heads / config_.num_kv_heads;
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto q_scale = static_cast<float>(config_.query_scale);
  const auto part_of = [&](const std::vector<float>& bias, int64_t head) {
    return bias.empty() ? nullptr : bias.data() + head * head_dim;
  };
  // One item is one row's share of one key-value head; neighbouring rows, which share cache lines, stay together.
  const Span items = split(num_rows * config_.num_kv_heads, thread, pool_.num_threads());
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t kv_head = item / num_rows, r = item % num_rows;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      float* q = q_.row(r) + head * head_dim;
      prepare_head(q, part_of(w.attn_q_bias, head), w.attn_q_norm, r, layer, q_scale);
      int16_t* codes = q_codes_.as<int16_t>() + r * q_stride_ + head * padded(head_dim);
      q_scales_.row(r)[head] = ops_.quantise_head(q, head_dim, codes);
    }
    float *k = k_.row(r) + kv_head * head_dim, *v = v_.row(r) + kv_head * head_dim;
    prepare_head(k, part_of(w.attn_k_bias, kv_head), w.attn_k_norm, r, layer, 1.0f);
    if (const float* bias = part_of(w.attn_v_bias, kv_head)) ops_.add(v, bias, head_dim, v);
    const int64_t slot = rows[r].slot;
    ops_.write_cache(k, v, head_dim, block_of(*rows[r].sequence, slot, layer, kv_head), slot % kBlockPositions);
  }
}

void Executor::prepare_head(float* x, const float* bias, const std::vector<float>& norm, int64_t row, int64_t layer,
                            float scale) {
  const int64_t n = config_.head_dim;
  if (bias != nullptr) ops_.add(x, bias, n, x);
  if (!norm.empty())
    ops_.scale(x, ops_.rms_scale(x, n, static_cast<float>(config_.norm_eps)), norm.data(), n, x);
  const Rotation& rotation = config_.window(layer) == 0 ? rotations_.front() : rotations_.back();
  const auto half = static_cast<int64_t>(rotation.inv_freq.size());
  ops_.rotate(x, rotation.cos.row(row), rotation.sin.row(row), half, n, scale);
}

void Executor::attend_and_project(const Selection& selection, int64_t layer, int thread) {
  const LayerWeights& w = weights_.layers[layer];
  const auto num_tasks = static_cast<int64_t>(selection.tasks.size());
  for (int64_t i; (i = next_task_.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) {
    AttentionTask task = selection.tasks[i].attention;
    task.chunk_offset = cache_.offset(layer, selection.tasks[i].kv_head);
    task.window = config_.window(layer);
    task.sees_start = config_.cache_window > 0 && (task.window == 0 || task.window > config_.cache_window);
    if (task.sees_start) task.window = config_.cache_window;
    ops_.attend(task, scratch_[thread].as<float>());
  }
  barrier_.arrive_and_wait();
  const Span columns = columns_of(attended_, thread);
  if (w.attn_output.quantised) attended_.quantize_columns(columns.begin, columns.end, isa_);
  const MatmulJob job{&w.attn_output, projected_.row(0), projected_.stride};
  multiply({&job, 1}, attended_, thread);
}

// Leaves the two terms of the residual stream, whose sum is taken where it is needed next.
void Executor::feed_forward(const Selection& selection, int64_t layer, int thread) {
  const LayerWeights& w = weights_.layers[layer];
  add_and_norm(selection.rows, residual_, projected_, w.attn_post_norm, after_attention_, w.ffn_norm,
               w.ffn_gate.quantised || w.ffn_up.quantised, thread);
  const MatmulJob gate_and_up[] = {{&w.ffn_gate, gate_.row(0), gate_.stride}, {&w.ffn_up, up_.row(0), up_.stride}};
  multiply(gate_and_up, normed_, thread);

  const Span columns = columns_of(gated_, thread);
  const int64_t begin = columns.begin, count = std::min(columns.end, gate_.stride) - begin;
  const auto activate = config_.activation == "silu" ? ops_.silu_mul : ops_.gelu_mul;
  for (int64_t r = 0; count > 0 && r < gated_.num_rows(); ++r)
    activate(gate_.row(r) + begin, up_.row(r) + begin, count, gated_.floats() + r * gated_.stride() + begin);
  if (w.ffn_down.quantised) gated_.quantize_columns(columns.begin, columns.end, isa_);
  const MatmulJob down{&w.ffn_down, projected_.row(0), projected_.stride};
  multiply({&down, 1}, gated_, thread);
}

void Executor::project_to_logits(float* logits, int thread) {
  const std::vector<int64_t>& tokens = weights_.head_tokens;
  barrier_.arrive_and_wait();
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  const bool is_cut = num_tokens != 0;
  const MatmulJob job{&weights_.output, is_cut ? head_.as<float>() : logits, weights_.output.num_out};
  matmul({&job, 1}, normed_, isa_, thread, pool_.num_threads());
  if (!is_cut) return;
  barrier_.arrive_and_wait();
  const Span ids = split(config_.vocab_size, thread, pool_.num_threads());
  const auto first = std::lower_bound(tokens.begin(), tokens.end(), ids.begin) - tokens.begin();
  for (int64_t r = 0; r < normed_.num_rows(); ++r) {
    const float* head = head_.as<float>() + r * num_tokens;
    float* row = logits + r * config_.vocab_size;
    std::fill(row + ids.begin, row + ids.end, -std::numeric_limits<float>::infinity());
    for (int64_t i = first; i < num_tokens && tokens[i] < ids.end; ++i) row[tokens[i]] = head[i];
  }
}

}  // namespace outrider
