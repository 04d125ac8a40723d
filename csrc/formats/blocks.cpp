#include "formats/blocks.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace outrider {
namespace {

uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

// 32 codes from 16 bytes: low nibbles first, then high ones.
void split_nibbles_32(const uint8_t* src, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = src[i] & 15;
    codes[i + 16] = src[i] >> 4;
  }
}

void add_fifth_bits_32(const uint8_t* src, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>((src[i / 8] >> (i % 8) & 1) << 4);
}

void decode_q4_0(const uint8_t* src, QuantBlock& out) {
  out.d = load_u16(src);
  split_nibbles_32(src + 2, out.codes);
}

void decode_q4_1(const uint8_t* src, QuantBlock& out) {
  out.d = load_u16(src);
  out.min = load_u16(src + 2);
  split_nibbles_32(src + 4, out.codes);
}

void decode_q5_0(const uint8_t* src, QuantBlock& out) {
  out.d = load_u16(src);
  split_nibbles_32(src + 6, out.codes);
  add_fifth_bits_32(src + 2, out.codes);
}

void decode_q5_1(const uint8_t* src, QuantBlock& out) {
  out.d = load_u16(src);
  out.min = load_u16(src + 2);
  split_nibbles_32(src + 8, out.codes);
  add_fifth_bits_32(src + 4, out.codes);
}

void decode_q8_0(const uint8_t* src, QuantBlock& out) {
  out.d = load_u16(src);
  for (int i = 0; i < 32; ++i) out.codes[i] = src[2 + i] ^ 0x80;  // int8 + 128
}

// d, dmin and the 8 + 8 six-bit scales and minimums in 12 bytes: the first four of each lie whole in the low bits of
// bytes 0-3 and 4-7, the others have their low nibbles in bytes 8-11 and their upper two bits on top of bytes 0-7.
void decode_k_header(const uint8_t* src, QuantBlock& out) {
  out.d = load_u16(src);
  out.min = load_u16(src + 2);
  const uint8_t* const s = src + 4;
  for (int i = 0; i < 4; ++i) {
    out.scales[i] = s[i] & 63;
    out.mins[i] = s[i + 4] & 63;
    out.scales[i + 4] = static_cast<uint8_t>((s[i + 8] & 15) | s[i] >> 6 << 4);
    out.mins[i + 4] = static_cast<uint8_t>(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
  }
}

// Each 32 bytes hold two groups of 32: low nibbles, then high nibbles.
void split_nibbles_256(const uint8_t* src, uint8_t* codes) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      codes[pair * 64 + i] = src[pair * 32 + i] & 15;
      codes[pair * 64 + 32 + i] = src[pair * 32 + i] >> 4;
    }
  }
}

void decode_q4_k(const uint8_t* src, QuantBlock& out) {
  decode_k_header(src, out);
  split_nibbles_256(src + 16, out.codes);
}

// The fifth bit of element i of group g is bit g of byte i.
void decode_q5_k(const uint8_t* src, QuantBlock& out) {
  decode_k_header(src, out);
  split_nibbles_256(src + 48, out.codes);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) out.codes[g * 32 + i] |= static_cast<uint8_t>((src[16 + i] >> g & 1) << 4);
  }
}

// Two halves of 128 elements, four runs of 32 in each: runs 0 and 1 in the low nibbles of 32 bytes each, runs 2 and 3
// in the high ones; the upper two bits of run r are bits 2r and 2r+1 of 32 shared bytes.
void decode_q6_k(const uint8_t* src, QuantBlock& out) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* const low = src + half * 64;
    const uint8_t* const high = src + 128 + half * 32;
    for (int run = 0; run < 4; ++run) {
      for (int i = 0; i < 32; ++i) {
        const int nibble = low[run % 2 * 32 + i] >> (run / 2 * 4) & 15;
        out.codes[half * 128 + run * 32 + i] = static_cast<uint8_t>(nibble | (high[i] >> (2 * run) & 3) << 4);
      }
    }
  }
  std::memcpy(out.scales, src + 192, 16);
  out.d = load_u16(src + 208);
}

}  // namespace

int code_offset(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0: return 8;
    case WeightType::kQ5_0: return 16;
    case WeightType::kQ6_K: return 32;
    case WeightType::kQ8_0: return 128;
    default: return 0;
  }
}

void decode_block(WeightType type, const uint8_t* src, QuantBlock& out) {
  switch (type) {
    case WeightType::kQ4_0: return decode_q4_0(src, out);
    case WeightType::kQ4_1: return decode_q4_1(src, out);
    case WeightType::kQ5_0: return decode_q5_0(src, out);
    case WeightType::kQ5_1: return decode_q5_1(src, out);
    case WeightType::kQ8_0: return decode_q8_0(src, out);
    case WeightType::kQ4_K: return decode_q4_k(src, out);
    case WeightType::kQ5_K: return decode_q5_k(src, out);
    case WeightType::kQ6_K: return decode_q6_k(src, out);
    default: throw std::invalid_argument(std::string(weight_type_info(type).name) + " has no quantised blocks");
  }
}

}  // namespace outrider
