#include "shared_threads.h"

#include <array>
#include <atomic>
#include <memory>

#include "threads.h"

namespace forerun {
namespace {

constexpr std::size_t most_threads = 256;

struct Shared {
  std::atomic<bool> is_taken{false};
  std::unique_ptr<ThreadPool> pool;
};

// Takes them for the length of a block, if nobody has them. No mutex: who has them may ask again,
// in a signal handler during a pass.
class Taken {
 public:
  explicit Taken(Shared* shared)
      : shared_(shared != nullptr && !shared->is_taken.exchange(true) ? shared : nullptr) {}
  ~Taken() {
    if (shared_ != nullptr) shared_->is_taken.store(false);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  explicit operator bool() const { return shared_ != nullptr; }

 private:
  Shared* const shared_;
};

// Those of a number of threads; null if it is too high. Never ended: at a process's end, no thread
// waits for another. In a process that is forked while they work, they stay busy for ever, and
// every caller does without.
Shared* shared(std::size_t threads) {
  static auto* const all = new std::array<Shared, most_threads + 1>;
  return threads <= most_threads ? &(*all)[threads] : nullptr;
}

}  // namespace

bool run_shared(std::size_t threads, const std::function<void(std::size_t)>& work) {
  Shared* const mine = shared(threads);
  const Taken taken(mine);
  if (!taken) return false;
  if (!mine->pool) mine->pool = std::make_unique<ThreadPool>(threads);
  mine->pool->run(work);
  return true;
}

void wake_shared(std::size_t threads) {
  Shared* const mine = shared(threads);
  const Taken taken(mine);
  if (taken && mine->pool) mine->pool->wake();
}

}  // namespace forerun
