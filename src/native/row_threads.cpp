#include "row_threads.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <vector>

#include "threads.h"

namespace forerun {
namespace {

class Shared {
 public:
  // Calls work(thread, threads) in so many threads, or returns false before any work.
  template <class Work>
  bool run(std::size_t threads, const Work& work) {
    const std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
    if (!mine) return false;
    if (!pool_ || pool_->threads() != threads) pool_ = std::make_unique<ThreadPool>(threads);
    try {
      pool_->run([&](std::size_t thread) { work(thread, threads); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

 private:
  std::mutex busy_;
  std::unique_ptr<ThreadPool> pool_;
};

// Never ended: at a process's end, no thread waits for another. In a process that is forked while
// they work, they stay busy for ever, and every caller does without.
Shared& shared() {
  static Shared* const one = new Shared;
  return *one;
}

}  // namespace

void for_rows(std::size_t count, std::size_t threads,
              const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> thrown(std::max<std::size_t>(threads, 1));
  const auto do_share = [&](std::size_t thread, std::size_t of) {
    const Share share(count, thread, of);
    try {
      for (std::size_t i = share.first; i < share.last; ++i) work(i);
    } catch (...) {
      thrown[thread] = std::current_exception();
    }
  };
  if (std::min(count, threads) <= 1 || !shared().run(threads, do_share)) do_share(0, 1);
  for (const std::exception_ptr& one : thrown) {
    if (one) std::rethrow_exception(one);
  }
}

}  // namespace forerun
