// Sixteen lanes in one AVX-512 register; needs F, BW, VL, DQ and VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace outrider {
namespace {

struct Avx512 {
  static constexpr int kMaxRows = 16;
  static constexpr int kMaxFloatRows = 8;
  template <int kBits> static constexpr bool kSigned = false;

  using F32 = __m512;
  using I32 = __m512i;
  using U8 = __m512i;

  static U8 load_u8(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static U8 shift_right(U8 a, int bits) {
    return bits < 0 ? _mm512_slli_epi16(a, static_cast<unsigned>(-bits))
                    : _mm512_srli_epi16(a, static_cast<unsigned>(bits));
  }
  static U8 and_mask(U8 a, uint8_t mask) { return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask))); }
  static U8 or_masked(U8 a, U8 b, uint8_t mask) {
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(static_cast<char>(mask)), 0xf8);  // a | (b & c)
  }
  static U8 flip_top_bits(U8 a) { return _mm512_xor_si512(a, _mm512_set1_epi8(static_cast<char>(0x80))); }
  static U8 subtract(U8 a, int b) { return b == 0 ? a : _mm512_sub_epi8(a, _mm512_set1_epi8(static_cast<char>(b))); }
  static void store_u8(uint8_t* p, U8 a) { _mm512_storeu_si512(p, a); }

  static I32 zero_i32() { return _mm512_setzero_si512(); }
  static I32 broadcast(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, sizeof value);
    return _mm512_set1_epi32(value);
  }
  static I32 broadcast_shifted(const int32_t* p, int bits) {
    return _mm512_slli_epi32(broadcast(p), static_cast<unsigned>(bits));
  }
  template <int kBits>
  static I32 dot(I32 acc, U8 w, const int8_t* p) {
    return _mm512_dpbusd_epi32(acc, w, broadcast(p));
  }
  static I32 load_i32(const int32_t* p) { return _mm512_loadu_si512(p); }
  static __m128i load_16_bytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static I32 load_s8_as_i32(const uint8_t* p) { return _mm512_cvtepi8_epi32(load_16_bytes(p)); }
  static I32 mul_i32(I32 a, I32 b) { return _mm512_mullo_epi32(a, b); }
  static I32 add_i32(I32 a, I32 b) { return _mm512_add_epi32(a, b); }

  static F32 zero_f32() { return _mm512_setzero_ps(); }
  static F32 load_f32(const uint8_t* p) { return _mm512_loadu_ps(p); }
  static __m256i load_32_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static F32 load_f16(const uint8_t* p) { return _mm512_cvtph_ps(load_32_bytes(p)); }
  static F32 load_bf16(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32_bytes(p)), 16));
  }
  static F32 load_u8_as_f32(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_bytes(p))); }
  static F32 to_float(I32 a) { return _mm512_cvtepi32_ps(a); }
  static F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
  static F32 mul_broadcast(F32 a, const float* p) { return _mm512_mul_ps(a, _mm512_set1_ps(*p)); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  static F32 fma_broadcast(F32 a, const float* p, F32 c) { return _mm512_fmadd_ps(a, _mm512_set1_ps(*p), c); }
  static F32 fnma_broadcast(F32 a, const float* p, F32 c) { return _mm512_fnmadd_ps(a, _mm512_set1_ps(*p), c); }
  static void store(float* p, F32 a) { _mm512_storeu_ps(p, a); }
};

}  // namespace
}  // namespace outrider
