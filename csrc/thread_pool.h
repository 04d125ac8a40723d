// A small pool: the calling thread and n - 1 workers run one function together. Workers spin briefly for the next
// call, since passes and the packing of matrices follow each other closely, then sleep.
#pragma once

#include <functional>
#include <memory>

namespace outrider {

constexpr int kMaxThreads = 256;

class ThreadPool {
 public:
  // Throws std::invalid_argument unless 1 <= num_threads <= kMaxThreads and the system lets so many start.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  // Calls task(thread_index) once on every thread, returns when all are done. Not reentrant. An exception thrown by
  // the task on any thread is rethrown here after all are done. A child made by fork() has none of the workers:
  // std::invalid_argument, unless there were none to begin with.
  void run(const std::function<void(int)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// [begin, end) of n items for one of several threads: contiguous, in order, sizes differing by at most one.
struct Span { long begin, end; };
inline Span split(long n, int thread, int num_threads) {
  return {n * thread / num_threads, n * (thread + 1) / num_threads};
}

}  // namespace outrider
