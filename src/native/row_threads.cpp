#include "row_threads.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <system_error>

#include "threads.h"

namespace forerun {
namespace {

// Never ended: at a process's end, no thread waits for another. In a process that is forked while
// they work, they stay busy for ever, and every caller does without.
struct Shared {
  std::mutex busy;
  std::unique_ptr<ThreadPool> pool;
};

Shared& shared() {
  static Shared* const one = new Shared;
  return *one;
}

}  // namespace

void for_rows(std::size_t count, std::size_t threads,
              const std::function<void(std::size_t)>& work) {
  const auto do_share = [&](std::size_t thread, std::size_t of) {
    const Share share(count, thread, of);
    for (std::size_t i = share.first; i < share.last; ++i) work(i);
  };
  std::unique_lock<std::mutex> mine(shared().busy, std::defer_lock);
  if (std::min(count, threads) <= 1 || !mine.try_lock()) return do_share(0, 1);
  std::unique_ptr<ThreadPool>& pool = shared().pool;
  if (!pool || pool->threads() != threads) pool = std::make_unique<ThreadPool>(threads);
  try {
    pool->run([&](std::size_t thread) { do_share(thread, threads); });
  } catch (const std::system_error&) {  // before any work
    do_share(0, 1);
  }
}

}  // namespace forerun
