#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "formats/blocks.h"
#include "formats/half.h"
#include "matmul/layout.h"
#include "matmul/matmul.h"
#include "matmul/requantise.h"

namespace outrider {
namespace {

// The codes of one group of 32 of 16 columns, quad by quad, to the planes of layout.h.
void write_codes(const Layout& layout, const uint8_t (&quads)[kQuads][kLine], uint8_t* dst) {
  if (layout.low_bits == 8) {
    std::memcpy(dst, quads, sizeof quads);
    return;
  }
  for (int i = 0; i < kQuads / 2; ++i) {
    for (int b = 0; b < kLine; ++b) {
      dst[i * kLine + b] = static_cast<uint8_t>((quads[2 * i][b] & 15) | quads[2 * i + 1][b] << 4);
    }
  }
  uint8_t* const high = dst + layout.low_bytes();
  std::memset(high, 0, static_cast<size_t>(layout.group_bytes() - layout.low_bytes()));
  if (layout.high_bits == 0) return;
  const int per_line = 8 / layout.high_bits;
  for (int q = 0; q < kQuads; ++q) {
    uint8_t* const line = high + q / per_line * kLine;
    const int shift = q % per_line * layout.high_bits;
    for (int b = 0; b < kLine; ++b) line[b] |= static_cast<uint8_t>(quads[q][b] >> 4 << shift);
  }
}

void put_u16(uint8_t* dst, uint16_t value) { std::memcpy(dst, &value, sizeof value); }

// source[i]: the file's blocks of column c of one block of the layout, `parts` of them (two where the file has 32s).
void write_header(WeightType type, const QuantBlock (&source)[kLanes][2], uint8_t* dst) {
  const Layout& layout = kLayouts[static_cast<int>(type)];
  for (int c = 0; c < kLanes; ++c) {
    if (type == WeightType::kQ6_K) {
      const float d = f16_to_float(source[c][0].d);
      std::memcpy(dst + 4 * c, &d, sizeof d);
      for (int g = 0; g < 16; ++g) dst[64 + 16 * g + c] = source[c][0].scales[g];
    } else if (layout.block_k == 256) {
      put_u16(dst + 2 * c, source[c][0].d);
      put_u16(dst + 32 + 2 * c, source[c][0].min);
      for (int g = 0; g < 8; ++g) {
        dst[64 + 16 * g + c] = source[c][0].scales[g];
        dst[192 + 16 * g + c] = source[c][0].mins[g];
      }
    } else {
      for (int part = 0; part < 2; ++part) {
        put_u16(dst + 32 * part + 2 * c, source[c][part].d);
        // The file adds its minimum, the kernels subtract: flip the sign.
        if (layout.has_min()) put_u16(dst + 64 + 32 * part + 2 * c, source[c][part].min ^ 0x8000);
      }
    }
  }
}

// get_block(row, index, out) yields block `index` of a row, in blocks of block_elements of the type.
template <class GetBlock>
void pack_panel(WeightType type, int64_t first_row, int rows, int64_t num_in, const GetBlock& get_block, uint8_t* dst) {
  const Layout& layout = kLayouts[static_cast<int>(type)];
  const int elements = weight_type_info(type).block_elements;
  const int parts = layout.block_k / elements;
  QuantBlock source[kLanes][2];
  for (int64_t b = 0; b < layout.blocks(num_in); ++b, dst += layout.block_bytes()) {
    std::memset(source, 0, sizeof source);
    for (int c = 0; c < rows; ++c) {
      for (int part = 0; part < parts; ++part) {
        const int64_t index = b * parts + part;
        if (index * elements < num_in) get_block(first_row + c, index, source[c][part]);
      }
    }
    write_header(type, source, dst);
    for (int g = 0; g < layout.groups(); ++g) {
      uint8_t quads[kQuads][kLine];
      const int part = g * kGroup / elements;
      const int start = g * kGroup % elements;
      for (int c = 0; c < kLanes; ++c) {
        for (int q = 0; q < kQuads; ++q) std::memcpy(&quads[q][4 * c], &source[c][part].codes[start + 4 * q], 4);
      }
      write_codes(layout, quads, dst + layout.header_bytes + g * layout.group_bytes());
    }
  }
}

struct Source {
  WeightType type;
  const uint8_t* bytes;
  int64_t row_bytes;
  int64_t num_in;

  void dequantise(int64_t row, std::vector<float>& out) const {
    out.resize(static_cast<size_t>(num_in));
    dequantize_row(type, bytes + row * row_bytes, num_in, out.data());
  }
};

void pack_from_file(const Source& src, int64_t first_row, int rows, uint8_t* dst) {
  const int64_t block_bytes = weight_type_info(src.type).block_bytes;
  const auto get_block = [&](int64_t row, int64_t index, QuantBlock& out) {
    decode_block(src.type, src.bytes + row * src.row_bytes + index * block_bytes, out);
  };
  pack_panel(src.type, first_row, rows, src.num_in, get_block, dst);
}

void pack_requantised(const Source& src, WeightType as, int64_t first_row, int rows, uint8_t* dst) {
  std::vector<float> values[kLanes];
  for (int c = 0; c < rows; ++c) src.dequantise(first_row + c, values[c]);
  const auto get_block = [&](int64_t row, int64_t index, QuantBlock& out) {
    const int n = static_cast<int>(std::min<int64_t>(kGroup, src.num_in - index * kGroup));
    (as == WeightType::kQ8_0 ? requantise_int8 : requantise_int4)(values[row - first_row].data() + index * kGroup, n,
                                                                  out);
  };
  pack_panel(as, first_row, rows, src.num_in, get_block, dst);
}

// k by k the columns; columns[c] points to n elements at any alignment.
template <class Element>
void interleave(const uint8_t* const* columns, int rows, int64_t n, uint8_t* dst) {
  constexpr int64_t kSize = sizeof(Element);
  for (int64_t k = 0; k < n; ++k, dst += kFloatColumns * kSize) {
    for (int c = 0; c < rows; ++c) std::memcpy(dst + c * kSize, columns[c] + k * kSize, kSize);
  }
}

void pack_floats(const Source& src, WeightType as, int64_t first_row, int rows, uint8_t* dst) {
  const uint8_t* columns[kFloatColumns] = {};
  std::vector<float> values;
  std::vector<uint16_t> rounded[kFloatColumns];
  for (int c = 0; c < rows; ++c) {
    columns[c] = src.bytes + (first_row + c) * src.row_bytes;
    if (as == src.type) continue;
    src.dequantise(first_row + c, values);
    rounded[c].resize(values.size());
    std::transform(values.begin(), values.end(), rounded[c].begin(), float_to_bf16);
    columns[c] = reinterpret_cast<const uint8_t*>(rounded[c].data());
  }
  if (as == WeightType::kF32) interleave<float>(columns, rows, src.num_in, dst);
  else interleave<uint16_t>(columns, rows, src.num_in, dst);
}

WeightType packed_type(WeightType type, PackAs as) {
  const Layout& layout = kLayouts[static_cast<int>(type)];
  switch (as) {
    case PackAs::kFile: return type;
    case PackAs::kInt8: return layout.quantised() ? type : WeightType::kQ8_0;
    case PackAs::kInt4: return layout.bits() == 4 ? type : WeightType::kQ4_0;
    case PackAs::kBFloat16: return WeightType::kBF16;
  }
  throw std::invalid_argument("not a packing: " + std::to_string(static_cast<int>(as)));
}

void check_size(std::span<const uint8_t> src, int64_t num_out, int64_t row_size) {
  int64_t expected = 0;
  if (num_out < 1 || __builtin_mul_overflow(num_out, row_size, &expected) ||
      static_cast<uint64_t>(expected) != src.size()) {
    throw std::invalid_argument("a matrix of " + std::to_string(num_out) + " rows of " + std::to_string(row_size) +
                                " bytes does not match its " + std::to_string(src.size()) + " bytes of data");
  }
}

}  // namespace

PackedMatrix pack(WeightType type, std::span<const uint8_t> src, int64_t num_out, int64_t num_in, PackAs as,
                  ThreadPool& pool) {
  const Source source{type, src.data(), row_bytes(type, num_in), num_in};
  check_size(src, num_out, source.row_bytes);
  const WeightType held = packed_type(type, as);
  const Layout& layout = kLayouts[static_cast<int>(held)];
  const int64_t panels = layout.panels(num_out);
  const int64_t panel_bytes = layout.panel_bytes(num_in);

  PackedMatrix packed;
  packed.num_out = num_out;
  packed.num_in = num_in;
  packed.quantised = layout.quantised();
  packed.format = static_cast<int>(held);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(panels, panel_bytes, &bytes)) throw std::bad_alloc();
  packed.data = AlignedBuffer(static_cast<size_t>(bytes));
  pool.run([&](int thread) {
    const Span share = split(panels, thread, pool.num_threads());
    for (int64_t p = share.begin; p < share.end; ++p) {
      uint8_t* const dst = packed.data.as<uint8_t>() + p * panel_bytes;
      const int64_t first_row = p * layout.columns();
      const int rows = static_cast<int>(std::min<int64_t>(layout.columns(), num_out - first_row));
      if (!layout.quantised()) pack_floats(source, held, first_row, rows, dst);
      else if (held == type) pack_from_file(source, first_row, rows, dst);
      else pack_requantised(source, held, first_row, rows, dst);
    }
  });
  return packed;
}

}  // namespace outrider
