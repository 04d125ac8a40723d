// Sixteen lanes in two AVX2 registers; needs FMA and F16C as well.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace outrider {
namespace {

struct Avx2 {
  static constexpr int kMaxRows = 8;
  static constexpr int kMaxFloatRows = 2;
  // vpmaddubsw adds pairs of products in 16 bits and saturates. Codes of up to 6 bits are safe, 2 * 63 * 127 = 16002;
  // 8-bit codes are taken as signed, |w| * (a with the sign of w), where 2 * 128 * 127 = 32512 just fits.
  template <int kBits> static constexpr bool kSigned = kBits == 8;

  struct F32 { __m256 low, high; };
  struct I32 { __m256i low, high; };
  using U8 = I32;

  static const __m256i* at(const void* p, int half) { return static_cast<const __m256i*>(p) + half; }
  static __m256i bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }

  static U8 load_u8(const uint8_t* p) { return {_mm256_loadu_si256(at(p, 0)), _mm256_loadu_si256(at(p, 1))}; }
  static U8 shift_right(U8 a, int bits) {
    return bits < 0 ? U8{_mm256_slli_epi16(a.low, -bits), _mm256_slli_epi16(a.high, -bits)}
                    : U8{_mm256_srli_epi16(a.low, bits), _mm256_srli_epi16(a.high, bits)};
  }
  static U8 and_mask(U8 a, uint8_t mask) {
    return {_mm256_and_si256(a.low, bytes(mask)), _mm256_and_si256(a.high, bytes(mask))};
  }
  static U8 or_masked(U8 a, U8 b, uint8_t mask) {
    const U8 masked = and_mask(b, mask);
    return {_mm256_or_si256(a.low, masked.low), _mm256_or_si256(a.high, masked.high)};
  }
  static U8 flip_top_bits(U8 a) {
    return {_mm256_xor_si256(a.low, bytes(0x80)), _mm256_xor_si256(a.high, bytes(0x80))};
  }
  static U8 subtract(U8 a, int b) {
    return {_mm256_sub_epi8(a.low, bytes(b)), _mm256_sub_epi8(a.high, bytes(b))};
  }

  static I32 zero_i32() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static __m256i broadcast(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, sizeof value);
    return _mm256_set1_epi32(value);
  }
  static I32 broadcast_shifted(const int32_t* p, int bits) {
    const __m256i value = _mm256_slli_epi32(broadcast(p), bits);
    return {value, value};
  }
  template <int kBits>
  static __m256i dot_half(__m256i acc, __m256i w, __m256i a) {
    const __m256i pairs = kSigned<kBits> ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
                                         : _mm256_maddubs_epi16(w, a);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  template <int kBits>
  static I32 dot(I32 acc, U8 w, const int8_t* p) {
    const __m256i a = broadcast(p);
    return {dot_half<kBits>(acc.low, w.low, a), dot_half<kBits>(acc.high, w.high, a)};
  }
  static __m128i load_8_bytes(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
  static I32 load_s8_as_i32(const uint8_t* p) {
    return {_mm256_cvtepi8_epi32(load_8_bytes(p)), _mm256_cvtepi8_epi32(load_8_bytes(p + 8))};
  }
  static I32 mul_i32(I32 a, I32 b) { return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)}; }
  static I32 add_i32(I32 a, I32 b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }

  static F32 zero_f32() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F32 load_f32(const uint8_t* p) {
    return {_mm256_castsi256_ps(_mm256_loadu_si256(at(p, 0))), _mm256_castsi256_ps(_mm256_loadu_si256(at(p, 1)))};
  }
  static __m128i load_16_bytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static F32 load_f16(const uint8_t* p) {
    return {_mm256_cvtph_ps(load_16_bytes(p)), _mm256_cvtph_ps(load_16_bytes(p + 16))};
  }
  static __m256 bf16_to_f32(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static F32 load_bf16(const uint8_t* p) { return {bf16_to_f32(load_16_bytes(p)), bf16_to_f32(load_16_bytes(p + 16))}; }
  static F32 load_u8_as_f32(const uint8_t* p) {
    return to_float({_mm256_cvtepu8_epi32(load_8_bytes(p)), _mm256_cvtepu8_epi32(load_8_bytes(p + 8))});
  }
  static F32 to_float(I32 a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
  static F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F32 set1(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static F32 mul_broadcast(F32 a, const float* p) { return mul(a, set1(*p)); }
  static F32 fma(F32 a, F32 b, F32 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F32 fma_broadcast(F32 a, const float* p, F32 c) { return fma(a, set1(*p), c); }
  static F32 fnma_broadcast(F32 a, const float* p, F32 c) {
    const __m256 value = _mm256_set1_ps(*p);
    return {_mm256_fnmadd_ps(a.low, value, c.low), _mm256_fnmadd_ps(a.high, value, c.high)};
  }
  static void store(float* p, F32 a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
  }
};

}  // namespace
}  // namespace outrider
