// Sixteen lanes in four NEON registers; needs the dot product extension of ARMv8.2.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace outrider {
namespace {

struct Neon {
  static constexpr int kMaxRows = 8;
  static constexpr int kMaxFloatRows = 2;
  template <int kBits> static constexpr bool kSigned = true;  // SDOT

  struct F32 { float32x4_t v[4]; };
  struct I32 { int32x4_t v[4]; };
  struct U8 { uint8x16_t v[4]; };

  template <class Vector, class Function>
  static Vector map(const Function& f) {
    return {{f(0), f(1), f(2), f(3)}};
  }

  static U8 load_u8(const uint8_t* p) { return map<U8>([=](int i) { return vld1q_u8(p + 16 * i); }); }
  // To the left when bits is negative.
  static U8 shift_right(const U8& a, int bits) {
    return map<U8>([&](int i) { return vshlq_u8(a.v[i], vdupq_n_s8(static_cast<int8_t>(-bits))); });
  }
  static U8 and_mask(const U8& a, uint8_t mask) {
    return map<U8>([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(mask)); });
  }
  static U8 or_masked(const U8& a, const U8& b, uint8_t mask) {
    return map<U8>([&](int i) { return vorrq_u8(a.v[i], vandq_u8(b.v[i], vdupq_n_u8(mask))); });
  }
  static U8 flip_top_bits(const U8& a) { return map<U8>([&](int i) { return veorq_u8(a.v[i], vdupq_n_u8(0x80)); }); }
  static U8 subtract(const U8& a, int b) {
    return map<U8>([&](int i) { return vsubq_u8(a.v[i], vdupq_n_u8(static_cast<uint8_t>(b))); });
  }

  static I32 zero_i32() { return map<I32>([](int) { return vdupq_n_s32(0); }); }
  template <int kBits>
  static I32 dot(const I32& acc, const U8& w, const int8_t* p) {
    const int8x16_t a = vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(p)));
    return map<I32>([&](int i) { return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(w.v[i]), a); });
  }
  static I32 load_s8_as_i32(const uint8_t* p) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
  }
  static I32 mul_i32(const I32& a, const I32& b) { return map<I32>([&](int i) { return vmulq_s32(a.v[i], b.v[i]); }); }
  static I32 add_i32(const I32& a, const I32& b) { return map<I32>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); }); }

  static F32 zero_f32() { return map<F32>([](int) { return vdupq_n_f32(0); }); }
  static F32 load_f32(const uint8_t* p) {
    return map<F32>([=](int i) { return vreinterpretq_f32_u8(vld1q_u8(p + 16 * i)); });
  }
  static F32 load_f16(const uint8_t* p) {
    return map<F32>([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))); });
  }
  static F32 load_bf16(const uint8_t* p) {
    return map<F32>([=](int i) {
      return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)), 16));
    });
  }
  static F32 load_u8_as_f32(const uint8_t* p) {
    const uint8x16_t bytes = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
  }
  static F32 to_float(const I32& a) { return map<F32>([&](int i) { return vcvtq_f32_s32(a.v[i]); }); }
  static F32 mul(const F32& a, const F32& b) { return map<F32>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); }); }
  static F32 mul_broadcast(const F32& a, const float* p) {
    return map<F32>([&](int i) { return vmulq_n_f32(a.v[i], *p); });
  }
  static F32 fma(const F32& a, const F32& b, const F32& c) {
    return map<F32>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  static F32 fma_broadcast(const F32& a, const float* p, const F32& c) {
    return map<F32>([&](int i) { return vfmaq_n_f32(c.v[i], a.v[i], *p); });
  }
  static F32 fnma_broadcast(const F32& a, const float* p, const F32& c) {
    return map<F32>([&](int i) { return vfmsq_f32(c.v[i], a.v[i], vdupq_n_f32(*p)); });
  }
  static void store(float* p, const F32& a) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
  }
};

}  // namespace
}  // namespace outrider
