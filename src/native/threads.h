// Threads that run one function together, with a barrier between its stages.
//
// Waiting spins at first, because stages of a pass are microseconds long, and then sleeps: the
// machine may be shared.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace forerun {

// Lets `threads` threads meet any number of times.
class Barrier {
 public:
  explicit Barrier(std::size_t threads) : threads_(static_cast<std::uint32_t>(threads)) {}

  // Returns once all threads have called it; what they wrote before is then seen by all.
  void wait();

 private:
  void sleep(std::uint32_t turn);

  const std::uint32_t threads_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> turn_{0};
  std::atomic<std::uint32_t> asleep_{0};
  std::mutex mutex_;
  std::condition_variable turned_;
};

// The part [first, last) of `count` things that falls to one of `threads` threads.
struct Share {
  Share(std::size_t count, std::size_t thread, std::size_t threads)
      : first(count * thread / threads), last(count * (thread + 1) / threads) {}
  std::size_t first;
  std::size_t last;
};

class ThreadPool {
 public:
  // The caller of `run` is thread 0; `threads` - 1 others are started at the first `run`, and
  // anew in a process that was forked since.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return threads_; }

  // Calls work(thread) in all threads and returns when all have returned. `work` must not throw.
  // Throws std::system_error if the system gives no more threads; nothing has been called then.
  void run(const std::function<void(std::size_t)>& work);

  // Tells threads that sleep that `run` will be called in a moment.
  void wake();

 private:
  struct Crew;
  std::size_t threads_;
  std::unique_ptr<Crew> crew_;
};

}  // namespace forerun
