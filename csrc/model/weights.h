// The tensors of one model, packed for the kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "matmul/matmul.h"
#include "model/config.h"

namespace outrider {

// One tensor of a model file: see TensorSource in models/config.py.
struct Tensor {
  std::string role;
  std::optional<int64_t> layer;
  WeightType type;
  std::vector<int64_t> shape;
  std::span<const uint8_t> data;
  std::shared_ptr<const void> owner;  // keeps data alive
};

// Vectors are padded with zeros to a multiple of 16; one that the model lacks is empty.
struct LayerWeights {
  std::vector<float> attn_norm, attn_q_bias, attn_k_bias, attn_v_bias, attn_q_norm, attn_k_norm, attn_post_norm;
  std::vector<float> ffn_norm, ffn_post_norm;
  PackedMatrix attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down;
};

class Weights {
 public:
  explicit Weights(const ModelConfig& config);

  // Both throw std::invalid_argument, naming the tensor, what it is and what it should be; nothing is changed then.
  // The rows of q and k are reordered here where the file has the interleaved rope style, so that the executor knows
  // the other one only. The embedding is not copied: rows of it are widened as they are looked up.
  void add(const Tensor& tensor, PackAs pack_as, ThreadPool& pool);
  // Keeps the rows of these tokens only of the output matrix: ids in ascending order. Once, and before that matrix.
  void cut_head(std::vector<int64_t> token_ids);
  // Checks that nothing is missing. Without an output matrix, packs the embedding as one.
  void finish(ThreadPool& pool);

  void embed(int64_t token, float* row) const;

  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
  PackedMatrix output;
  std::vector<int64_t> head_tokens;  // whose logit each column of the output is; empty: all of them, in order

  // Of the packed matrices and the vectors; a pass over one token reads all of them once.
  int64_t bytes() const;

 private:
  void add_vector(std::vector<float>& vector, const Tensor& tensor, bool reorder, double offset);
  void add_matrix(PackedMatrix& matrix, const Tensor& tensor, PackAs pack_as, bool reorder, ThreadPool& pool);
  std::vector<uint8_t> reordered(const Tensor& tensor, int64_t item_bytes) const;
  void add_output(const Tensor& tensor, PackAs pack_as, ThreadPool& pool);

  const ModelConfig& config_;
  Tensor embedding_;
  PackAs embedding_pack_as_ = PackAs::kFile;
};

}  // namespace outrider
