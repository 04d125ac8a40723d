// How fast each format's kernels read their weights from memory, as JSON on stdout.
//
//   kernel_bench [threads [isa [format,format,...]]]
//
// Every pass goes over a set of matrices of at least 256 MiB, so that nothing stays in cache. `share_of_bandwidth`
// compares with a plain reading loop of the same threads, timed between the passes; `cost` is the time over that of
// one row.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "matmul/matmul.h"

namespace {

using namespace outrider;

constexpr int64_t kSetBytes = int64_t{256} << 20;
constexpr int kPasses = 15;
constexpr int kRowCounts[] = {1, 2, 4, 8, 16};

struct Shape { int64_t num_out, num_in; };
constexpr Shape kShapes[] = {{8960, 1536}, {1536, 8960}, {151936, 1536}};

template <class Function>
double seconds(const Function& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A file's bytes for a random matrix, with scales in a sensible range.
std::vector<uint8_t> random_weights(const WeightTypeInfo& info, int64_t count) {
  std::mt19937 rng(1);
  std::vector<uint8_t> bytes(static_cast<size_t>(count / info.block_elements * info.block_bytes));
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const uint32_t value = rng();
    std::memcpy(&bytes[i], &value, 4);
  }
  const auto set_half = [&](size_t at) { bytes[at + 1] = static_cast<uint8_t>((bytes[at + 1] & 0x83) | 0x20); };
  for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(info.block_bytes)) {
    if (info.type == WeightType::kF32) {
      bytes[i + 3] = 0x3c;
    } else if (info.block_elements == 1) {
      bytes[i + 1] = 0x3c;
    } else {
      set_half(info.type == WeightType::kQ6_K ? i + 208 : i);
      if (info.name.ends_with("_1") || info.name == "Q4_K" || info.name == "Q5_K") set_half(i + 2);
    }
  }
  return bytes;
}

std::vector<PackedMatrix> make_set(const WeightTypeInfo& info, Shape shape, ThreadPool& pool) {
  const std::vector<uint8_t> file = random_weights(info, shape.num_out * shape.num_in);
  std::vector<PackedMatrix> set;
  set.push_back(pack(info.type, file, shape.num_out, shape.num_in, PackAs::kFile, pool));
  const int64_t bytes = set[0].bytes_per_pass();
  while (static_cast<int64_t>(set.size()) * bytes < kSetBytes) {
    PackedMatrix copy;
    copy.num_out = set[0].num_out;
    copy.num_in = set[0].num_in;
    copy.quantised = set[0].quantised;
    copy.format = set[0].format;
    copy.data = AlignedBuffer(static_cast<size_t>(bytes));
    std::memcpy(copy.data.as<uint8_t>(), set[0].data.as<uint8_t>(), static_cast<size_t>(bytes));
    set.push_back(std::move(copy));
  }
  return set;
}

uint64_t read_all(const uint8_t* data, Span span) {
  uint64_t sums[32] = {};
  const auto* const words = reinterpret_cast<const uint64_t*>(data);
  for (long i = span.begin; i + 32 <= span.end; i += 32) {
    for (int j = 0; j < 4; ++j) __builtin_prefetch(words + i + 512 + 8 * j);
    for (int j = 0; j < 32; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

// For each matrix of the set the least time of any pass: a short step is often left alone where a long one is not.
class BestTimes {
 public:
  explicit BestTimes(size_t count) : times_(count, 1e9) {}
  template <class Function>
  void time_each(const Function& step) {
    for (size_t i = 0; i < times_.size(); ++i) times_[i] = std::min(times_[i], seconds([&] { step(i); }));
  }
  double total() const { return std::accumulate(times_.begin(), times_.end(), 0.0); }

 private:
  std::vector<double> times_;
};

void fill(Activations& x, int64_t rows, int64_t num_in, Isa isa) {
  x.set_shape(rows, num_in);
  for (int64_t j = 0; j < rows * x.stride(); ++j) x.floats()[j] = static_cast<float>(j % 7) - 3;
  x.quantize_columns(0, x.stride(), isa);
}

void measure(const WeightTypeInfo& info, Shape shape, Isa isa, ThreadPool& pool, bool first) {
  const std::vector<PackedMatrix> set = make_set(info, shape, pool);
  Activations x(16, shape.num_in);
  std::vector<float> y(static_cast<size_t>(16 * shape.num_out));
  const int threads = pool.num_threads();
  volatile uint64_t sink = 0;
  BestTimes read(set.size());
  std::vector<BestTimes> products(std::size(kRowCounts), BestTimes(set.size()));
  for (int pass = 0; pass < kPasses; ++pass) {
    read.time_each([&](size_t i) {
      const int64_t words = set[i].bytes_per_pass() / 8;
      pool.run([&](int t) { sink = sink + read_all(set[i].data.as<uint8_t>(), split(words, t, threads)); });
    });
    for (size_t n = 0; n < std::size(kRowCounts); ++n) {
      fill(x, kRowCounts[n], shape.num_in, isa);
      products[n].time_each([&](size_t i) {
        const MatmulJob job{&set[i], y.data(), shape.num_out};
        pool.run([&](int t) { matmul({&job, 1}, x, isa, t, threads); });
      });
    }
  }
  const auto copies = static_cast<double>(set.size());
  const double bytes = copies * static_cast<double>(set[0].bytes_per_pass());
  const double weights = copies * static_cast<double>(shape.num_out * shape.num_in);
  for (size_t n = 0; n < std::size(kRowCounts); ++n) {
    const double time = products[n].total();
    std::printf("%s\n  {\"format\": \"%s\", \"num_out\": %ld, \"num_in\": %ld, \"rows\": %d, \"gweights_per_s\": %.1f, "
                "\"gb_per_s\": %.1f, \"share_of_bandwidth\": %.2f, \"cost\": %.2f}",
                first && n == 0 ? "" : ",", std::string(info.name).c_str(), static_cast<long>(shape.num_out),
                static_cast<long>(shape.num_in), kRowCounts[n], weights / time / 1e9, bytes / time / 1e9,
                read.total() / time, time / products[0].total());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::stoi(argv[1]) : 2);
  const Isa isa = choose_isa(argc > 2 ? argv[2] : "");
  const std::string formats = argc > 3 ? argv[3] : "Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,Q4_K,Q5_K,Q6_K,BF16";
  std::printf("{\"threads\": %d, \"isa\": \"%s\", \"results\": [", pool.num_threads(),
              std::string(isa_name(isa)).c_str());
  bool first = true;
  for (size_t at = 0; at < formats.size();) {
    const size_t end = std::min(formats.find(',', at), formats.size());
    const std::string name = formats.substr(at, end - at);
    const WeightTypeInfo* const info = find_weight_type(name);
    if (info == nullptr) {
      std::fprintf(stderr, "no such format: %s\n", name.c_str());
      return 2;
    }
    for (const Shape shape : kShapes) {
      measure(*info, shape, isa, pool, first);
      first = false;
    }
    at = end + 1;
  }
  std::printf("\n]}\n");
}
