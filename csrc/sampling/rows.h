// The functions of kernels.h; included once per instruction set.
#pragma once

#include "ops/vec.h"
#include "sampling/kernels.h"
#include "sampling/lanes.h"

namespace outrider {
namespace {

bool group_maxima(const float* x, int64_t n, float* maxima) {
  const Vec lowest = splat(-0x1.fffffep127f), zero = splat(0.0f);
  Vec trouble = zero;  // zero times a finite number is zero, times anything else NaN
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    const float* group = x + begin;
    float padded[kGroup];
    if (n - begin < kGroup) {
      for (int64_t i = 0; i < kGroup; ++i) padded[i] = begin + i < n ? group[i] : -kInfinity;
      group = padded;
    }
    Vec most = load(group);
    for (int i = kLanes; i < kGroup; i += kLanes) most = max(load(group + i), most);
    for (int i = 0; i < kGroup; i += kLanes) trouble = fma(max(lowest, load(group + i)), zero, trouble);
    maxima[begin / kGroup] = max_of_lanes(most);
  }
  return sum_of_lanes(trouble) == 0.0f;
}

void mask(float* x, int64_t n, const uint8_t* bits) {
  const Vec nothing = splat(-kInfinity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(x + i, select(static_cast<uint16_t>(bits[i / 8] | bits[i / 8 + 1] << 8), load(x + i), nothing));
  for (; i < n; ++i)
    if ((bits[i / 8] >> i % 8 & 1) == 0) x[i] = -kInfinity;
}

// Calls f(i, lanes) for the whole lanes of n entries and f(i, count) for what is left over.
template <class Whole, class Rest> inline void each(int64_t n, const Whole& whole, const Rest& rest) {
  int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) whole(i);
  if (i < n) rest(i, static_cast<size_t>(n - i));
}

template <class T> struct Padded {
  T v[kDoubles];
  Padded(const T* p, size_t count, T filling) {
    for (size_t i = 0; i < kDoubles; ++i) v[i] = i < count ? p[i] : filling;
  }
};

void weights(const float* x, int64_t n, float top, double inverse_temperature, double* out) {
  const Lanes most = lanes(top), factor = lanes(inverse_temperature);
  const auto weigh = [&](const float* p) { return exp((widen(p) - most) * factor); };
  each(
      n, [&](int64_t i) { store(out + i, weigh(x + i)); },
      [&](int64_t i, size_t count) {
        double some[kDoubles];
        store(some, weigh(Padded<float>(x + i, count, top).v));
        std::memcpy(out + i, some, count * sizeof(double));
      });
}

double sum(const double* x, int64_t n) {
  Lanes total = lanes(0.0);
  each(
      n, [&](int64_t i) { total = total + load(x + i); },
      [&](int64_t i, size_t count) { total = total + load(Padded<double>(x + i, count, 0.0).v); });
  return sum_of_lanes(total);
}

double moment(const float* x, const double* weights, int64_t n, float top, double inverse_temperature) {
  const Lanes most = lanes(top), factor = lanes(inverse_temperature), least = lanes(-708.0);
  Lanes total = lanes(0.0);
  const auto add = [&](const float* p, const double* w) {
    total = fma(load(w), max((widen(p) - most) * factor, least), total);
  };
  each(
      n, [&](int64_t i) { add(x + i, weights + i); },
      [&](int64_t i, size_t count) {
        add(Padded<float>(x + i, count, top).v, Padded<double>(weights + i, count, 0.0).v);
      });
  return sum_of_lanes(total);
}

void difference(const double* target, double target_scale, double scale, const double* drafted, double drafted_scale,
                int64_t n, double* out) {
  const Lanes ours = lanes(target_scale), factor = lanes(scale), theirs = lanes(drafted_scale), zero = lanes(0.0);
  const auto subtract = [&](const double* t, const double* d) {
    return max(load(t) * ours * factor - load(d) * theirs, zero);
  };
  each(
      n, [&](int64_t i) { store(out + i, subtract(target + i, drafted + i)); },
      [&](int64_t i, size_t count) {
        double some[kDoubles];
        store(some, subtract(Padded<double>(target + i, count, 0.0).v, Padded<double>(drafted + i, count, 0.0).v));
        std::memcpy(out + i, some, count * sizeof(double));
      });
}

}  // namespace
}  // namespace outrider
