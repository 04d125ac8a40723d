// Everything in a pass that is not a matrix product: the same bits on every instruction set, and the right ones.
#include "ops/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "tests.h"

namespace outrider::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Floats = std::vector<float>;

Floats random_floats(int64_t n, float scale, std::mt19937& rng) {
  std::normal_distribution<float> normal(0, scale);
  Floats values(static_cast<size_t>(n));
  for (float& value : values) value = normal(rng);
  return values;
}

bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

// What f computes with each instruction set, against the portable one.
template <class F> void check_all_agree(const std::string& what, const F& f) {
  const Floats expected = f(ops_for(Isa::kPortable));
  for (const Isa isa : available_isas()) {
    const Floats found = f(ops_for(isa));
    for (size_t i = 0; i < expected.size(); ++i)
      check(same(found[i], expected[i]), what, " with ", isa_name(isa), ", value ", i, ": ", found[i], " for ", expected[i]);
  }
}

// A head's codes, and what they stand for.
struct Head {
  std::vector<int16_t> codes;
  float scale;

  Head(const Ops& ops, const float* x, int64_t n) : codes(static_cast<size_t>(padded(n)), 1) {
    scale = ops.quantise_head(x, n, codes.data());
  }
  float value(int64_t d) const { return scale * static_cast<float>(codes[static_cast<size_t>(d)]); }
};

// A cache of one head with so many positions, and queries at its end.
struct Scene {
  int64_t head_dim, group, rows, length;
  int64_t window = 0;
  Floats keys, values, queries;  // [length or rows * group, head_dim]
  Floats scales;                 // of the queries' codes
  std::vector<int16_t> codes;
  std::vector<AttentionRow> places;
  std::vector<std::vector<int16_t>> chunks;
  std::vector<const int16_t*> chunk_data;

  Scene(int64_t head_dim, int64_t group, int64_t rows, int64_t length, std::mt19937& rng)
      : head_dim(head_dim), group(group), rows(rows), length(length),
        keys(random_floats(length * head_dim, 1, rng)), values(random_floats(length * head_dim, 1, rng)),
        queries(random_floats(rows * group * head_dim, 1, rng)) {
    const int64_t block = block_elements(head_dim);
    for (int64_t c = 0; c <= (length - 1) / kChunkPositions; ++c) {
      chunks.emplace_back(static_cast<size_t>(kBlocksPerChunk * block), int16_t{99});
      for (int64_t b = 0; b < kBlocksPerChunk; ++b)  // scales of NaN where nothing is
        std::fill_n(chunks.back().begin() + b * block, kHeaderElements, int16_t{0x7fff});
    }
    for (const auto& chunk : chunks) chunk_data.push_back(chunk.data());
    for (int64_t p = 0; p < length; ++p) {
      int16_t* at = chunks[static_cast<size_t>(p / kChunkPositions)].data() + p % kChunkPositions / kBlockPositions * block;
      ops_for(Isa::kPortable).write_cache(&keys[static_cast<size_t>(p * head_dim)],
                                          &values[static_cast<size_t>(p * head_dim)], head_dim, at, p % kBlockPositions);
    }
    for (int64_t i = 0; i < rows * group; ++i) {
      const Head head(ops_for(Isa::kPortable), &queries[static_cast<size_t>(i * head_dim)], head_dim);
      codes.insert(codes.end(), head.codes.begin(), head.codes.end());
      scales.push_back(head.scale);
    }
    for (int64_t r = 0; r < rows; ++r) places.push_back({.position = length - rows + r});
    for (Floats* const all : {&keys, &values, &queries})  // from here on what the codes stand for
      for (size_t begin = 0; begin < all->size(); begin += static_cast<size_t>(head_dim)) {
        const Head head(ops_for(Isa::kPortable), all->data() + begin, head_dim);
        for (int64_t d = 0; d < head_dim; ++d) (*all)[begin + static_cast<size_t>(d)] = head.value(d);
      }
  }

  Floats attend(const Ops& ops, int64_t pieces = 1) const {
    Floats out(queries.size());
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const AttentionTask task{.chunks = chunk_data.data(), .chunk_offset = 0, .head_dim = head_dim, .group = group,
                               .window = window, .rows = places.data(), .begin = rows * group * piece / pieces,
                               .end = rows * group * (piece + 1) / pieces, .q = codes.data(),
                               .q_stride = group * padded(head_dim), .q_scales = scales.data(), .q_scales_stride = group,
                               .out = out.data(), .out_stride = group * head_dim};
      Floats scratch(static_cast<size_t>(attention_scratch(head_dim)));
      ops.attend(task, scratch.data());
    }
    return out;
  }

  // Element d of query i, in double precision.
  double exact(int64_t i, int64_t d) const {
    const int64_t visible = length - rows + i / group + 1;
    double total = 0, sum = 0;
    for (int64_t p = window == 0 ? 0 : std::max<int64_t>(0, visible - window); p < visible; ++p) {
      double score = 0;
      for (int64_t k = 0; k < head_dim; ++k)
        score += static_cast<double>(queries[static_cast<size_t>(i * head_dim + k)]) *
                 keys[static_cast<size_t>(p * head_dim + k)];
      const double weight = std::exp(score);
      total += weight;
      sum += weight * values[static_cast<size_t>(p * head_dim + d)];
    }
    return sum / total;
  }
};

}  // namespace

void test_row_functions_agree() {
  std::mt19937 rng(1);
  for (const int64_t n : {16, 48, 64, 1536}) {
    for (const float poison : {0.0f, kInf, kNaN, 3e38f}) {
      Floats x = random_floats(n, 3, rng), y = random_floats(n, 3, rng);
      x[5] += poison;
      check_all_agree("rms_scale", [&](const Ops& ops) { return Floats{ops.rms_scale(x.data(), n, 1e-6f)}; });
      check_all_agree("rms_scale", [&](const Ops& ops) { return Floats{ops.rms_scale(x.data(), n - 3, 1e-6f)}; });
      const auto into = [&](const auto& f) {
        Floats out(x.size());
        f(out.data());
        return out;
      };
      check_all_agree("scale", [&](const Ops& ops) {
        return into([&](float* out) { ops.scale(x.data(), 0.7f, y.data(), n, out); });
      });
      check_all_agree("add", [&](const Ops& ops) { return into([&](float* out) { ops.add(x.data(), y.data(), n, out); }); });
      check_all_agree("silu_mul", [&](const Ops& ops) {
        return into([&](float* out) { ops.silu_mul(x.data(), y.data(), n, out); });
      });
      check_all_agree("gelu_mul", [&](const Ops& ops) {
        return into([&](float* out) { ops.gelu_mul(x.data(), y.data(), n, out); });
      });
      check_all_agree("rotate", [&](const Ops& ops) {
        Floats turned = x;
        ops.rotate(turned.data(), y.data(), y.data() + 7, 7, n, 0.3f);
        return turned;
      });
    }
  }
}

void test_attention_agrees() {
  std::mt19937 rng(2);
  for (const int64_t head_dim : {2, 18, 64, 80, 128})
    for (const int64_t group : {1, 3, 7})
      for (const int64_t rows : {1, 2, 5, 13})
        for (const int64_t length : {13, 64, 65, 200, 257, 300}) {
          const Scene scene(head_dim, group, rows, length, rng);
          check_all_agree("attend", [&](const Ops& ops) { return scene.attend(ops); });
          check(scene.attend(ops_for(available_isas().back()), std::min<int64_t>(rows * group, 4)) ==
                    scene.attend(ops_for(Isa::kPortable)),
                "the cut into tasks changes what a query gets");
        }
}

void test_attention_is_close_to_exact() {
  std::mt19937 rng(3);
  Scene scene(32, 3, 4, 150, rng);
  for (const int64_t window : {0, 1, 2, 20, 22, 86, 87, 149, 150, 1000}) {
    scene.window = window;
    const Floats found = scene.attend(ops_for(Isa::kPortable));
    for (int64_t i = 0; i < 12; ++i)
      for (int64_t d = 0; d < 32; ++d) {
        const float value = found[static_cast<size_t>(i * 32 + d)];
        check(std::abs(value - scene.exact(i, d)) < 2e-4, "query ", i, ": ", value, " for ", scene.exact(i, d));
      }
  }
}

void test_windows_agree() {
  std::mt19937 rng(6);
  for (const int64_t rows : {1, 5, 70})
    for (const int64_t window : {1, 3, 63, 64, 65, 150}) {
      Scene scene(18, 2, rows, 200, rng);
      scene.window = window;
      check_all_agree("attend", [&](const Ops& ops) { return scene.attend(ops, 2); });
      check(scene.attend(ops_for(available_isas().back()), rows * 2) == scene.attend(ops_for(Isa::kPortable), 2),
            "the cut into tasks changes what a query gets");
    }
}

void test_attention_does_not_see_what_lies_before_the_window() {
  std::mt19937 rng(7);
  Scene scene(32, 3, 4, 70, rng);
  scene.window = 30;  // the first row sees positions 37 to 66
  const Floats before = scene.attend(ops_for(Isa::kPortable)), poison(32, kNaN);
  for (int64_t p = 0; p < 37; ++p)
    ops_for(Isa::kPortable).write_cache(poison.data(), poison.data(), 32, scene.chunks[0].data(), p);
  for (const Isa isa : available_isas()) {
    const Floats after = scene.attend(ops_for(isa));
    for (size_t i = 0; i < after.size(); ++i) check(same(after[i], before[i]), "value ", i, " changed");
  }
}

void test_attention_does_not_see_later_rows() {
  std::mt19937 rng(5);
  Scene scene(32, 3, 4, 70, rng);
  const Floats before = scene.attend(ops_for(Isa::kPortable));
  const Floats infinite(32, kInf);
  ops_for(Isa::kPortable).write_cache(infinite.data(), infinite.data(), 32,
                                      scene.chunks[0].data() + block_elements(32), 69 - kBlockPositions);  // the last row's
  for (const Isa isa : available_isas()) {
    const Floats after = scene.attend(ops_for(isa));
    for (size_t i = 0; i < 3 * 3 * 32; ++i) check(same(after[i], before[i]), "value ", i, " of an earlier row changed");
    for (size_t i = 3 * 3 * 32; i < after.size(); ++i) check(!std::isfinite(after[i]), "value ", i, " is finite");
  }
}

void test_silu_is_close_to_exact() {
  const Ops& ops = ops_for(Isa::kPortable);
  for (float x = -80; x < 100; x += 0.37f) {
    Floats gate(16, x), up(16, 1.0f), out(16);
    ops.silu_mul(gate.data(), up.data(), 16, out.data());
    const double exact = x / (1 + std::exp(-static_cast<double>(x)));
    check(std::abs(out[0] - exact) <= 4e-7 * std::abs(exact), "silu(", x, ") is ", out[0], " for ", exact);
  }
}

void test_gelu_is_close_to_exact() {
  const Ops& ops = ops_for(Isa::kPortable);
  for (float x = -80; x < 100; x += 0.037f) {
    Floats gate(16, x), up(16, 2.0f), out(16);
    ops.gelu_mul(gate.data(), up.data(), 16, out.data());
    const double g = x, exact = g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    check(std::abs(out[0] - exact) <= 4e-7 * std::abs(g), "2 gelu(", x, ") is ", out[0], " for ", exact);
  }
}

void test_norm_of_a_head_takes_nothing_beyond_it() {
  for (const Isa isa : available_isas()) {
    Floats head(32, 2.0f);
    std::fill(head.begin() + 18, head.end(), kNaN);  // the next head
    check(ops_for(isa).rms_scale(head.data(), 18, 0.0f) == 0.5f, isa_name(isa), " looks beyond the head");
  }
}

void test_cache_takes_nothing_beyond_a_head() {
  for (const Isa isa : available_isas()) {
    Floats head(32, 2.0f);
    std::fill(head.begin() + 18, head.end(), kNaN);  // the next head, which another thread may be writing
    std::vector<int16_t> block(static_cast<size_t>(block_elements(18)), 1);
    ops_for(isa).write_cache(head.data(), head.data(), 18, block.data(), 3);
    const auto found = block.begin() + kHeaderElements + 18 * kBlockPositions + 2 * 32 + 1;
    for (int64_t d = 0; d < 32; ++d)
      check(found[2 * d] == (d < 18 ? 7707 : 0), isa_name(isa), " stores ", found[2 * d], " at ", d);  // 32700 / sqrt(18)
  }
}

void test_heads_are_quantised_closely() {
  std::mt19937 rng(4);
  for (const int64_t n : {2, 18, 64, 128, 1024})
    for (const float size : {1e-30f, 1e-10f, 1.0f, 1e10f, 1e25f})
      for (const float poison : {0.0f, 100.0f, kInf, -kInf, kNaN}) {
        Floats x = random_floats(n, size, rng);
        x[static_cast<size_t>(n / 2)] += poison * size;
        check_all_agree("quantise_head", [&](const Ops& ops) {
          const Head head(ops, x.data(), n);
          Floats all(head.codes.begin(), head.codes.end());
          all.push_back(head.scale);
          return all;
        });
        const Head head(ops_for(Isa::kPortable), x.data(), n);
        double norm = 0;
        for (const int16_t code : head.codes) norm += static_cast<double>(code) * code;
        check(norm < 32767.0 * 32767.0, "codes of norm ", std::sqrt(norm), " overflow a product");
        if (!std::isfinite(poison) || size > 1e20f) check(std::isnan(head.scale), "a scale hides what is not finite");
        else if (size < 1e-20f) check(head.scale == 0, "a scale of ", head.scale, " for nothing");
        else
          for (int64_t d = 0; d < n; ++d)
            check(std::abs(head.value(d) - x[static_cast<size_t>(d)]) < 0.51f * head.scale, "value ", d, " is ",
                  head.value(d), " for ", x[static_cast<size_t>(d)]);
      }
}

}  // namespace outrider::test
