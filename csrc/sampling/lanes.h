// Eight doubles, and the few operations on them that laws need, each one IEEE operation per lane: the counterpart of
// ops/vec.h, compiled once per instruction set with the same bits. Everything has internal linkage, for the same reason.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace outrider {
namespace {

constexpr int kDoubles = 8;

#if defined(__AVX512F__)

struct Lanes { __m512d v; };
inline Lanes lanes(double x) { return {_mm512_set1_pd(x)}; }
inline Lanes load(const double* p) { return {_mm512_loadu_pd(p)}; }
inline Lanes widen(const float* p) { return {_mm512_cvtps_pd(_mm256_loadu_ps(p))}; }
inline void store(double* p, Lanes a) { _mm512_storeu_pd(p, a.v); }
inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_pd(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_pd(a.v, b.v)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_pd(a.v, b.v)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_pd(a.v, b.v)}; }
// value where x >= limit, zero elsewhere.
inline Lanes where_at_least(Lanes x, double limit, Lanes value) {
  return {_mm512_maskz_mov_pd(_mm512_cmp_pd_mask(x.v, _mm512_set1_pd(limit), _CMP_GE_OQ), value.v)};
}
// 2^n for the integers n left in the low bits of a double by adding 1.5 * 2^52.
inline Lanes exp2_of_low_bits(Lanes a) {
  const __m512i bits = _mm512_slli_epi64(_mm512_castpd_si512(a.v), 52);
  return {_mm512_castsi512_pd(_mm512_add_epi64(bits, _mm512_set1_epi64(0x3ff0000000000000)))};
}

#elif defined(__AVX2__)

struct Lanes { __m256d lo, hi; };
inline Lanes lanes(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
inline Lanes load(const double* p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
inline Lanes widen(const float* p) {
  return {_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4))};
}
inline void store(double* p, Lanes a) {
  _mm256_storeu_pd(p, a.lo);
  _mm256_storeu_pd(p + 4, a.hi);
}
inline Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_pd(a.lo, b.lo), _mm256_sub_pd(a.hi, b.hi)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_pd(a.lo, b.lo), _mm256_mul_pd(a.hi, b.hi)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi)};
}
inline Lanes max(Lanes a, Lanes b) { return {_mm256_max_pd(a.lo, b.lo), _mm256_max_pd(a.hi, b.hi)}; }
inline Lanes where_at_least(Lanes x, double limit, Lanes value) {
  const __m256d least = _mm256_set1_pd(limit);
  return {_mm256_and_pd(_mm256_cmp_pd(x.lo, least, _CMP_GE_OQ), value.lo),
          _mm256_and_pd(_mm256_cmp_pd(x.hi, least, _CMP_GE_OQ), value.hi)};
}
inline __m256d exp2_of_low_bits(__m256d a) {
  const __m256i bits = _mm256_slli_epi64(_mm256_castpd_si256(a), 52);
  return _mm256_castsi256_pd(_mm256_add_epi64(bits, _mm256_set1_epi64x(0x3ff0000000000000)));
}
inline Lanes exp2_of_low_bits(Lanes a) { return {exp2_of_low_bits(a.lo), exp2_of_low_bits(a.hi)}; }

#else

struct Lanes { double v[kDoubles]; };
template <class F> inline Lanes each_lane(F f) {
  Lanes r;
  for (int i = 0; i < kDoubles; ++i) r.v[i] = f(i);
  return r;
}
inline Lanes lanes(double x) {
  return each_lane([x](int) { return x; });
}
inline Lanes load(const double* p) {
  return each_lane([p](int i) { return p[i]; });
}
inline Lanes widen(const float* p) {
  return each_lane([p](int i) { return double{p[i]}; });
}
inline void store(double* p, const Lanes& a) { std::memcpy(p, a.v, sizeof a.v); }
inline Lanes operator+(const Lanes& a, const Lanes& b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
inline Lanes operator-(const Lanes& a, const Lanes& b) {
  return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
inline Lanes operator*(const Lanes& a, const Lanes& b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return each_lane([&](int i) { return __builtin_fma(a.v[i], b.v[i], c.v[i]); });
}
inline Lanes max(const Lanes& a, const Lanes& b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Lanes where_at_least(const Lanes& x, double limit, const Lanes& value) {
  return each_lane([&](int i) { return x.v[i] >= limit ? value.v[i] : 0.0; });
}
inline Lanes exp2_of_low_bits(const Lanes& a) {
  return each_lane([&](int i) {
    uint64_t bits;
    std::memcpy(&bits, &a.v[i], sizeof bits);
    bits = (bits << 52) + 0x3ff0000000000000u;
    double r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  });
}

#endif

// The sum of the lanes: halves folded onto each other, 8 to 4 to 2 to 1.
inline double sum_of_lanes(const Lanes& a) {
  double v[kDoubles];
  store(v, a);
  for (int half = kDoubles / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
}

// e^x for x <= 0 to about one unit in the last place; zero below -708, where results would lose their precision.
// x = n ln 2 + r in two steps (Cody and Waite), then 1 + r + r^2 g(r) with g of degree 9 interpolated at Chebyshev's
// points of |r| <= ln 2 / 2, which errs by 1.3e-17.
inline Lanes exp(const Lanes& x) {
  const Lanes magic = lanes(0x1.8p52);
  const Lanes shifted = fma(x, lanes(0x1.71547652b82fep+0), magic);
  const Lanes n = shifted - magic;
  const Lanes r = fma(n, lanes(-0x1.ef35793c76730p-45), fma(n, lanes(-0x1.62e42fefa3800p-1), x));
  Lanes g = fma(lanes(0x1.af389ed28db09p-26), r, lanes(0x1.28917c8be7ad6p-22));
  g = fma(g, r, lanes(0x1.71de0db2f585ep-19));
  g = fma(g, r, lanes(0x1.a019b914985a9p-16));
  g = fma(g, r, lanes(0x1.a01a01a7c2f03p-13));
  g = fma(g, r, lanes(0x1.6c16c17889ef9p-10));
  g = fma(g, r, lanes(0x1.11111111109b5p-7));
  g = fma(g, r, lanes(0x1.5555555553d68p-5));
  g = fma(g, r, lanes(0x1.5555555555556p-3));
  g = fma(g, r, lanes(0.5));
  g = fma(fma(g, r, lanes(1.0)), r, lanes(1.0));
  return where_at_least(x, -708.0, g * exp2_of_low_bits(shifted));
}

}  // namespace
}  // namespace outrider
