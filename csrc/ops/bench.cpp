// What attention costs for some rows of a sequence at the end of a long context, as JSON on stdout.
//
//   attention_bench [isa [head_dim [queries_per_key_head]]]
//
// Nanoseconds of one thread's processor time for a query and a block of 64 positions, the least of many passes, each
// over key-value heads of 64 MiB, so that none stays in cache.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "aligned.h"
#include "ops/ops.h"

namespace {

using namespace outrider;

constexpr int64_t kContext = 4096, kBytes = int64_t{64} << 20;
constexpr int kPasses = 15;
constexpr int64_t kRowCounts[] = {1, 2, 4, 8, 16};

double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  const Isa isa = choose_isa(argc > 1 ? argv[1] : "");
  const int64_t head_dim = argc > 2 ? std::stol(argv[2]) : 128, group = argc > 3 ? std::stol(argv[3]) : 6;
  const Ops& ops = ops_for(isa);
  const int64_t head_elements = kBlocksPerChunk * block_elements(head_dim);
  const int64_t num_chunks = kContext / kChunkPositions;
  const int64_t num_heads = std::max<int64_t>(1, kBytes / (num_chunks * head_elements * 2));

  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  const auto draw = [&](int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = normal(rng);
    return values;
  };
  std::vector<AlignedBuffer> memory;
  std::vector<int16_t*> chunks;
  for (int64_t c = 0; c < num_chunks; ++c) {
    memory.emplace_back(static_cast<size_t>(num_heads * head_elements * 2));
    chunks.push_back(memory.back().as<int16_t>());
  }
  const std::vector<float> some = draw(64 * head_dim);
  for (int64_t i = 0; i < kContext * num_heads; ++i) {
    const int64_t head = i % num_heads, position = i / num_heads;
    int16_t* block = chunks[position / kChunkPositions] + head * head_elements +
                     position % kChunkPositions / kBlockPositions * block_elements(head_dim);
    ops.write_cache(&some[i % 63 * head_dim], &some[i * 7 % 61 * head_dim], head_dim, block, position % kBlockPositions);
  }

  const int64_t width = padded(head_dim), most = 16 * group;
  const std::vector<float> queries = draw(most * head_dim);
  std::vector<int16_t> codes(static_cast<size_t>(most * width));
  std::vector<float> scales, out(static_cast<size_t>(most * head_dim));
  for (int64_t i = 0; i < most; ++i)
    scales.push_back(ops.quantise_head(&queries[i * head_dim], head_dim, &codes[i * width]) / 10);
  AlignedBuffer scratch(static_cast<size_t>(attention_scratch(head_dim)) * sizeof(float));

  std::printf("{\"isa\": \"%s\", \"head_dim\": %ld, \"group\": %ld, \"results\": [", std::string(isa_name(isa)).c_str(),
              static_cast<long>(head_dim), static_cast<long>(group));
  for (const int64_t num_rows : kRowCounts) {
    std::vector<AttentionRow> rows;
    for (int64_t r = 0; r < num_rows; ++r) rows.push_back({.position = kContext - num_rows + r});
    double best = 1e9;
    for (int pass = 0; pass < kPasses; ++pass) {
      const double start = processor_seconds();
      for (int64_t head = 0; head < num_heads; ++head)
        for (int64_t begin = 0; begin < num_rows * group; begin += kMaxTaskQueries)
          ops.attend({.chunks = chunks.data(),
                      .chunk_offset = head * head_elements,
                      .head_dim = head_dim,
                      .group = group,
                      .window = 0,
                      .rows = rows.data(),
                      .begin = begin,
                      .end = std::min(begin + kMaxTaskQueries, num_rows * group),
                      .q = codes.data(),
                      .q_stride = group * width,
                      .q_scales = scales.data(),
                      .q_scales_stride = group,
                      .out = out.data(),
                      .out_stride = group * head_dim},
                     scratch.as<float>());
      best = std::min(best, processor_seconds() - start);
    }
    const double blocks = static_cast<double>(num_heads * kContext / kBlockPositions);
    std::printf("%s\n  {\"rows\": %ld, \"ns_per_query_and_block\": %.1f, \"gb_per_s\": %.1f}", num_rows == 1 ? "" : ",",
                static_cast<long>(num_rows), best / blocks / static_cast<double>(num_rows * group) * 1e9,
                blocks * static_cast<double>(block_elements(head_dim)) * 2e-9 / best);
  }
  std::printf("\n]}\n");
}
