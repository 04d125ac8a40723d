// Sixteen lanes in plain C++.
#pragma once

#include <cstdint>
#include <cstring>

#include "formats/half.h"

namespace outrider {
namespace {

struct Portable {
  static constexpr int kMaxRows = 4;
  static constexpr int kMaxFloatRows = 2;
  template <int kBits> static constexpr bool kSigned = false;

  // A vector type of the compiler's, for bytes alone: GCC 12 for aarch64 gets loops over them wrong (x & 15) - 8.
  struct U8 { uint8_t v __attribute__((vector_size(64))); };
  struct F32 { float v[16]; };
  struct I32 { int32_t v[16]; };

  template <class Vector, class Function>
  static Vector map(Function f) {
    Vector out;
    for (int i = 0; i < 16; ++i) out.v[i] = f(i);
    return out;
  }

  static U8 load_u8(const uint8_t* p) {
    U8 out;
    std::memcpy(&out.v, p, sizeof out.v);
    return out;
  }
  // To the left when bits is negative.
  static U8 shift_right(const U8& a, int bits) { return bits < 0 ? U8{a.v << -bits} : U8{a.v >> bits}; }
  static U8 and_mask(const U8& a, uint8_t mask) { return {a.v & mask}; }
  static U8 or_masked(const U8& a, const U8& b, uint8_t mask) { return {a.v | (b.v & mask)}; }
  static U8 flip_top_bits(const U8& a) { return {a.v ^ uint8_t{0x80}}; }
  static U8 subtract(const U8& a, int b) { return {a.v - static_cast<uint8_t>(b)}; }
  static void store_u8(uint8_t* p, const U8& a) { std::memcpy(p, &a.v, sizeof a.v); }

  static I32 zero_i32() { return {}; }
  static I32 broadcast_shifted(const int32_t* p, int bits) { return map<I32>([=](int) { return *p * (1 << bits); }); }
  // acc + the product of each lane's four weights with the four codes at p.
  template <int kBits>
  static I32 dot(const I32& acc, const U8& w, const int8_t* p) {
    return map<I32>([&](int i) {
      return acc.v[i] + w.v[4 * i] * p[0] + w.v[4 * i + 1] * p[1] + w.v[4 * i + 2] * p[2] + w.v[4 * i + 3] * p[3];
    });
  }
  static I32 load_i32(const int32_t* p) { return map<I32>([=](int i) { return p[i]; }); }
  static I32 load_s8_as_i32(const uint8_t* p) {
    return map<I32>([=](int i) { return int32_t{static_cast<int8_t>(p[i])}; });
  }
  static I32 mul_i32(const I32& a, const I32& b) { return map<I32>([&](int i) { return a.v[i] * b.v[i]; }); }
  static I32 add_i32(const I32& a, const I32& b) { return map<I32>([&](int i) { return a.v[i] + b.v[i]; }); }

  static F32 zero_f32() { return {}; }
  static F32 load_f32(const uint8_t* p) {
    F32 out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
  }
  static uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
  static F32 load_f16(const uint8_t* p) { return map<F32>([=](int i) { return f16_to_float(load_u16(p + 2 * i)); }); }
  static F32 load_bf16(const uint8_t* p) { return map<F32>([=](int i) { return bf16_to_float(load_u16(p + 2 * i)); }); }
  static F32 load_u8_as_f32(const uint8_t* p) { return map<F32>([=](int i) { return static_cast<float>(p[i]); }); }
  static F32 to_float(const I32& a) { return map<F32>([&](int i) { return static_cast<float>(a.v[i]); }); }
  static F32 mul(const F32& a, const F32& b) { return map<F32>([&](int i) { return a.v[i] * b.v[i]; }); }
  static F32 mul_broadcast(const F32& a, const float* p) { return map<F32>([&](int i) { return a.v[i] * *p; }); }
  static F32 fma(const F32& a, const F32& b, const F32& c) {
    return map<F32>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  static F32 fma_broadcast(const F32& a, const float* p, const F32& c) {
    return map<F32>([&](int i) { return __builtin_fmaf(a.v[i], *p, c.v[i]); });
  }
  static F32 fnma_broadcast(const F32& a, const float* p, const F32& c) {
    return map<F32>([&](int i) { return __builtin_fmaf(-a.v[i], *p, c.v[i]); });
  }
  static void store(float* p, const F32& a) { std::memcpy(p, a.v, sizeof a.v); }
};

}  // namespace
}  // namespace outrider
