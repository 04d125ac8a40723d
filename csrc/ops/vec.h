// Sixteen floats or integers, and the few operations on them that the executor needs, each defined to the last bit.
//
// One source, compiled once per instruction set. Every operation is one IEEE operation per lane (a fused multiply-add
// counts as one), so that all sets agree. Where a comparison decides, it is `a > b ? a : b` with the second operand
// taken when either is NaN, as x86 has it; max_of_lanes alone may overlook NaNs. Everything has internal linkage: the
// linker must not pick code built for one instruction set for another.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace outrider {
namespace {

// select takes a lane from its first vector where the lane's bit is 1, else from the second. Beside floats (Vec) there
// are Ints, 32 bits each, and Pairs of 16 bits: add_products adds to each integer the two products of a lane's pairs,
// and store_rounded keeps the low 16 bits of floats rounded to the nearest even integer.
constexpr int kLanes = 16;
constexpr float kInfinity = __builtin_inff();

#if defined(__AVX512F__)

struct Vec { __m512 v; };
inline Vec splat(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline float max_of_lanes(Vec a) { return _mm512_reduce_max_ps(a.v); }
inline Vec select(uint16_t bits, Vec a, Vec b) { return {_mm512_mask_mov_ps(b.v, bits, a.v)}; }
// 2^n for the integers n left in the low bits of a float by adding 1.5 * 2^23.
inline Vec exp2_of_low_bits(Vec a) {
  const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(a.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3f800000)))};
}

struct Ints { __m512i v; };
struct Pairs { __m512i v; };
inline Ints no_ints() { return {_mm512_setzero_si512()}; }
inline Pairs load_pairs(const int16_t* p) { return {_mm512_loadu_si512(p)}; }
inline Pairs splat_pair(const int16_t* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return {_mm512_set1_epi32(pair)};
}
inline Ints add_products(Ints sum, Pairs a, Pairs b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));  // around the intrinsic GCC 12 copies every sum
  return sum;
}
inline Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline void store_rounded(int16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)));
}

#elif defined(__AVX2__)

struct Vec { __m256 lo, hi; };
inline Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline float max_of_lanes(Vec a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline __m256 select(int bits, __m256 a, __m256 b) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i is_set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), lane), lane);
  return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(is_set));
}
inline Vec select(uint16_t bits, Vec a, Vec b) { return {select(bits, a.lo, b.lo), select(bits >> 8, a.hi, b.hi)}; }
inline __m256 exp2_of_low_bits(__m256 a) {
  const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(a), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3f800000)));
}
inline Vec exp2_of_low_bits(Vec a) { return {exp2_of_low_bits(a.lo), exp2_of_low_bits(a.hi)}; }

struct Ints { __m256i lo, hi; };
struct Pairs { __m256i lo, hi; };
inline Ints no_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline Pairs load_pairs(const int16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
inline Pairs splat_pair(const int16_t* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return {_mm256_set1_epi32(pair), _mm256_set1_epi32(pair)};
}
inline Ints add_products(Ints sum, Pairs a, Pairs b) {
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(a.lo, b.lo)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(a.hi, b.hi))};
}
inline Vec to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline void store_rounded(int16_t* p, Vec a) {
  const __m256i mixed = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xd8));
}

#else  // four lanes at a time: SSE2, NEON, or whatever the compiler makes of it

typedef float Quad __attribute__((vector_size(16)));
typedef uint32_t QuadBits __attribute__((vector_size(16)));
struct Vec { Quad q[4]; };

template <class F> inline Vec each_quad(F f) { return {{f(0), f(1), f(2), f(3)}}; }
inline Vec splat(float x) {
  return each_quad([x](int) { return Quad{x, x, x, x}; });
}
inline Vec load(const float* p) {
  Vec r;
  std::memcpy(&r, p, sizeof r);
  return r;
}
inline void store(float* p, Vec a) { std::memcpy(p, &a, sizeof a); }
inline Vec add(Vec a, Vec b) {
  return each_quad([&](int i) { return a.q[i] + b.q[i]; });
}
inline Vec sub(Vec a, Vec b) {
  return each_quad([&](int i) { return a.q[i] - b.q[i]; });
}
inline Vec mul(Vec a, Vec b) {
  return each_quad([&](int i) { return a.q[i] * b.q[i]; });
}
inline Vec div(Vec a, Vec b) {
  return each_quad([&](int i) { return a.q[i] / b.q[i]; });
}
inline Vec max(Vec a, Vec b) {
  return each_quad([&](int i) { return a.q[i] > b.q[i] ? a.q[i] : b.q[i]; });
}
inline Vec min(Vec a, Vec b) {
  return each_quad([&](int i) { return a.q[i] < b.q[i] ? a.q[i] : b.q[i]; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__aarch64__)
  return each_quad([&](int i) {
    return Quad(vfmaq_f32(float32x4_t(c.q[i]), float32x4_t(a.q[i]), float32x4_t(b.q[i])));
  });
#else
  return each_quad([&](int i) {
    Quad r;
    for (int j = 0; j < 4; ++j) r[j] = __builtin_fmaf(a.q[i][j], b.q[i][j], c.q[i][j]);
    return r;
  });
#endif
}
inline float max_of_lanes(Vec a) {
  float v[kLanes];
  store(v, a);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
  return v[0];
}
inline Vec exp2_of_low_bits(Vec a) {
  return each_quad([&](int i) { return Quad((QuadBits(a.q[i]) << 23) + 0x3f800000u); });
}

inline Vec select(uint16_t bits, Vec a, Vec b) {
  return each_quad([&](int i) {
    const uint32_t four = uint32_t{bits} >> 4 * i;
    return (QuadBits{four, four, four, four} & QuadBits{1, 2, 4, 8}) != 0 ? a.q[i] : b.q[i];
  });
}

typedef int32_t QuadInts __attribute__((vector_size(16)));
struct Ints { QuadInts q[4]; };
struct Pairs { int16_t v[2 * kLanes]; };
inline Ints no_ints() { return {}; }
inline Pairs load_pairs(const int16_t* p) {
  Pairs r;
  std::memcpy(&r, p, sizeof r);
  return r;
}
inline Pairs splat_pair(const int16_t* p) {
  Pairs r;
  for (int i = 0; i < kLanes; ++i) std::memcpy(r.v + 2 * i, p, 2 * sizeof *p);
  return r;
}
inline Ints add_products(Ints sum, const Pairs& a, const Pairs& b) {
  for (int i = 0; i < 4; ++i) {
    const int16_t *x = a.v + 8 * i, *y = b.v + 8 * i;
#if defined(__aarch64__)
    const int16x8_t u = vld1q_s16(x), v = vld1q_s16(y);
    sum.q[i] += QuadInts(vpaddq_s32(vmull_s16(vget_low_s16(u), vget_low_s16(v)), vmull_high_s16(u, v)));
#else
    for (int j = 0; j < 4; ++j) sum.q[i][j] += x[2 * j] * y[2 * j] + x[2 * j + 1] * y[2 * j + 1];
#endif
  }
  return sum;
}
inline Vec to_floats(Ints a) {
  return each_quad([&](int i) { return __builtin_convertvector(a.q[i], Quad); });
}
inline void store_rounded(int16_t* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) {  // adding 1.5 * 2^23 leaves the rounded integer in the low bits
    const float shifted = a.q[i / 4][i % 4] + 0x1.8p23f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    p[i] = static_cast<int16_t>(bits);
  }
}
#endif

// The sum of the lanes: halves folded onto each other, 16 to 8 to 4 to 2 to 1.
inline float sum_of_lanes(Vec a) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
#endif
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  float v[kLanes];
  store(v, a);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
#endif
}
// e^x to about one unit in the last place for x in [-87, 88]; beyond, the value at the nearer end. NaN gives NaN.
// x = n ln 2 + r in two steps (Cody and Waite), then 1 + r + r^2 g(r) with g of degree 4 fitted for the least largest
// relative error (3e-9) on |r| <= ln 2 / 2.
inline Vec exp(Vec x) {
  x = min(splat(88.0f), max(splat(-87.0f), x));
  const Vec magic = splat(0x1.8p23f);
  const Vec shifted = fma(x, splat(0x1.715476p0f), magic);
  const Vec n = sub(shifted, magic);
  const Vec r = fma(n, splat(0x1.05c61p-29f), fma(n, splat(-0x1.62e43p-1f), x));
  Vec p = fma(splat(0x1.6a2434p-10f), r, splat(0x1.1239e2p-7f));
  p = fma(p, r, splat(0x1.5558f2p-5f));
  p = fma(p, r, splat(0x1.555492p-3f));
  p = fma(p, r, splat(0x1.fffffcp-2f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return mul(p, exp2_of_low_bits(shifted));
}

}  // namespace
}  // namespace outrider
