#include "matmul/activations.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace outrider {
namespace {

// Whole blocks of the flat formats; the inputs of K formats are multiples of 256 anyway.
int64_t padded_to_blocks(int64_t num_in) { return (num_in + 63) / 64 * 64; }

AlignedBuffer make_buffer(int64_t rows, int64_t per_row, size_t element) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(rows), static_cast<size_t>(per_row), &bytes) ||
      __builtin_mul_overflow(bytes, element, &bytes)) {
    throw std::bad_alloc();
  }
  return AlignedBuffer(bytes);
}

}  // namespace

Activations::Activations(int64_t max_rows, int64_t max_in) {
  if (max_rows < 1 || max_in < 1 || max_in > (int64_t{1} << 40)) {
    throw std::invalid_argument("activations of " + std::to_string(max_rows) + " rows of " + std::to_string(max_in) +
                                " are not possible; both must be positive");
  }
  const int64_t stride = padded_to_blocks(max_in);
  const int64_t groups = stride / kGroup;
  buffers_ = std::make_unique<Buffers>(
      Buffers{.max_rows = max_rows,
              .max_stride = stride,
              .floats = make_buffer(max_rows, stride, sizeof(float)),
              .codes = make_buffer(max_rows, stride, 1),
              .scales = make_buffer(max_rows, groups, sizeof(float)),
              .scaled_sums = make_buffer(max_rows, groups, sizeof(float)),
              .neg_sums = make_buffer(max_rows, groups, sizeof(int32_t)),
              .neg_half_sums = make_buffer(max_rows, 2 * groups, sizeof(int32_t))});
}

Activations::~Activations() = default;

float* Activations::floats() { return buffers_->floats.as<float>(); }
int64_t Activations::stride() const { return buffers_->stride; }
int64_t Activations::num_rows() const { return buffers_->num_rows; }
int64_t Activations::num_in() const { return buffers_->num_in; }

void Activations::set_shape(int64_t num_rows, int64_t num_in) {
  Buffers& b = *buffers_;
  if (num_rows < 0 || num_rows > b.max_rows || num_in < 1 || padded_to_blocks(num_in) > b.max_stride) {
    throw std::invalid_argument("activations of " + std::to_string(num_rows) + " rows of " + std::to_string(num_in) +
                                " do not fit buffers made for " + std::to_string(b.max_rows) + " rows of " +
                                std::to_string(b.max_stride));
  }
  b.num_rows = num_rows;
  b.num_in = num_in;
  b.stride = padded_to_blocks(num_in);
  const auto padding = static_cast<size_t>(b.stride - num_in) * sizeof(float);
  if (padding == 0) return;
  for (int64_t r = 0; r < num_rows; ++r) std::memset(floats() + r * b.stride + num_in, 0, padding);
}

void Activations::quantize_columns(int64_t begin, int64_t end, Isa isa) {
  quantize_columns_with(kernel_set(isa, num_rows()), *this, begin, end);
}

void quantize_columns_with(const KernelSet& kernels, const Activations& x, int64_t begin, int64_t end) {
  const Activations::Buffers& b = x.buffers();
  if (begin < 0 || end > b.stride || begin % kGroup != 0 || end % kGroup != 0) {
    throw std::invalid_argument("columns " + std::to_string(begin) + " to " + std::to_string(end) +
                                " are no groups of rows of " + std::to_string(b.stride));
  }
  if (begin >= end) return;
  const int64_t group = begin / kGroup;
  for (int64_t row = 0; row < b.num_rows; ++row) {
    const int64_t first = row / kernels.rows_per_block * kernels.rows_per_block;
    const int64_t rows = std::min<int64_t>(kernels.rows_per_block, b.num_rows - first);
    const int64_t index = row - first;
    const RowBlock block = b.block(first, static_cast<int>(rows));
    const int64_t code_step = kernels.interleaved ? 16 * rows : 16;
    const int64_t first_code = (kernels.interleaved ? 16 * index : index * b.stride) + 2 * group * code_step;
    const QuantizedRow out{.codes = const_cast<int8_t*>(block.codes) + first_code,
                           .code_step = code_step,
                           .scales = const_cast<float*>(block.scales) + index + group * rows,
                           .scaled_sums = const_cast<float*>(block.scaled_sums) + index + group * rows,
                           .neg_sums = const_cast<int32_t*>(block.neg_sums) + index + group * rows,
                           .neg_half_sums = const_cast<int32_t*>(block.neg_half_sums) + index + 2 * group * rows,
                           .step = rows};
    kernels.quantize_row(block.floats + index * b.stride + begin, end - begin, out);
  }
}

}  // namespace outrider
