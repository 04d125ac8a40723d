#include <atomic>
#include <numeric>
#include <string>

#include "check.h"
#include "isa.h"
#include "tests.h"
#include "thread_pool.h"

namespace outrider::test {

void test_pool_calls_every_thread() {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    check(pool.num_threads() == threads, "num_threads");
    std::vector<int> calls(static_cast<size_t>(threads), 0);
    for (int i = 0; i < 2000; ++i) pool.run([&](int t) { ++calls[static_cast<size_t>(t)]; });
    for (const int count : calls) check(count == 2000, "a thread of ", threads, " ran ", count, " of 2000 times");
  }
}

void test_pool_passes_exceptions_on() {
  ThreadPool pool(3);
  for (int thrower = 0; thrower < 3; ++thrower) {
    std::atomic<int> done = 0;
    check_throws<std::runtime_error>(
        [&] {
          pool.run([&](int t) {
            if (t == thrower) throw std::runtime_error("thread " + std::to_string(t));
            ++done;
          });
        },
        "thread " + std::to_string(thrower));
    check(done == 2, "the other threads did not finish");
  }
  std::atomic<int> after = 0;
  pool.run([&](int) { ++after; });
  check(after == 3, "the pool is of no use after an exception");
}

void test_pool_sizes() {
  check_throws<std::invalid_argument>([] { ThreadPool(0); }, "between 1 and 256");
  check_throws<std::invalid_argument>([] { ThreadPool(257); }, "between 1 and 256");
  for (long n : {0L, 1L, 7L, 100L}) {
    long next = 0;
    for (int t = 0; t < 7; ++t) {
      const Span span = split(n, t, 7);
      check(span.begin == next && span.end - span.begin <= n / 7 + 1, "split of ", n);
      next = span.end;
    }
    check(next == n, "split of ", n, " ends at ", next);
  }
}

void test_isa_names() {
  for (const Isa isa : available_isas()) check(choose_isa(isa_name(isa)) == isa, isa_name(isa));
  check(choose_isa("") == available_isas().back(), "the best set is not the default");
  check_throws<std::invalid_argument>([] { choose_isa("sse9"); }, "portable");
}

}  // namespace outrider::test
