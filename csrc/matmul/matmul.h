// y = x W^T for weight matrices repacked at load into panels of 16 output columns.
//
// A row of y depends on its own row of x only, and is summed in one fixed order, whatever the number of rows, the
// number of threads and the instruction set: see isa.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "aligned.h"
#include "formats/weight_types.h"
#include "isa.h"
#include "thread_pool.h"

namespace outrider {

// How the weights are held. kFile: the codes of the file, without loss (floating types stay as they are).
// kInt8: 8-bit codes in groups of 32, each with a scale; what the file holds in 8 bits or fewer stays as it is, since to
// round codes again loses accuracy and gains nothing.
// kInt4: 4-bit codes in groups of 32, each with a scale; what the file holds in 4 bits stays as it is.
enum class PackAs { kFile, kInt8, kInt4, kBFloat16 };

class PackedMatrix {
 public:
  int64_t num_out = 0;      // columns of y
  int64_t num_in = 0;       // columns of x
  bool quantised = false;   // whether matmul reads Activations' codes rather than its floats
  int format = 0;           // internal to the room
  AlignedBuffer data;       // internal to the room
  int64_t bytes_per_pass() const { return static_cast<int64_t>(data.bytes()); }
};

// src: num_out rows of row_bytes(type, num_in) bytes. Throws std::invalid_argument when its size is another.
PackedMatrix pack(WeightType type, std::span<const uint8_t> src, int64_t num_out, int64_t num_in, PackAs as,
                  ThreadPool& pool);

// Rows of x, as floats and, for quantised weights, as int8 codes with one scale per group of 32.
class Activations {
 public:
  Activations(int64_t max_rows, int64_t max_in);  // buffers are made once
  // Floats to be filled by the caller, [num_rows, stride()], the padding up to stride() zero.
  float* floats();
  int64_t stride() const;
  void set_shape(int64_t num_rows, int64_t num_in);
  int64_t num_rows() const;
  int64_t num_in() const;
  // Quantises columns [begin, end) of all rows, both multiples of 32; the threads of a pass share the columns, since
  // the rows lie interleaved. A value that is not finite makes all results of its row NaN.
  void quantize_columns(int64_t begin, int64_t end, Isa isa);

  // Internal to the room from here on.
  struct Buffers;
  const Buffers& buffers() const { return *buffers_; }
  ~Activations();

 private:
  std::unique_ptr<Buffers> buffers_;
};

struct MatmulJob {
  const PackedMatrix* weights;
  float* y;        // [num_rows, y_stride]
  int64_t y_stride;
};

// One thread's share of all jobs, which all read the same x; every thread of the pool calls it with its own index
// inside one ThreadPool::run. Rows of x must have been quantised if any job's weights are.
void matmul(std::span<const MatmulJob> jobs, const Activations& x, Isa isa, int thread, int num_threads);

}  // namespace outrider
