#include "threads.h"

#include <thread>
#include <vector>

#include <unistd.h>

namespace forerun {
namespace {

constexpr int spins = 1000;  // some 15 microseconds
// A thread that has worked waits longer for the next order, about as long as Python is busy with
// what came of the last one: to wake it takes 20 to 90 microseconds.
constexpr int idle_spins = 20 * spins;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Barrier::wait() {
  if (threads_ == 1) return;
  const std::uint32_t turn = turn_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    // In one order with the same two variables in `sleep`: who sleeps is seen, or sees the turn.
    turn_.store(turn + 1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst) > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      turned_.notify_all();
    }
    return;
  }
  for (int i = 0; i < spins; ++i) {
    if (turn_.load(std::memory_order_acquire) != turn) return;
    pause();
  }
  sleep(turn);
}

void Barrier::sleep(std::uint32_t turn) {
  std::unique_lock<std::mutex> lock(mutex_);
  asleep_.fetch_add(1, std::memory_order_seq_cst);
  turned_.wait(lock, [&] { return turn_.load(std::memory_order_seq_cst) != turn; });
  asleep_.fetch_sub(1, std::memory_order_relaxed);
}

// The threads of one process and what they are told.
struct ThreadPool::Crew {
  explicit Crew(std::size_t threads)
      : process(getpid()),
        // More threads than cores would only keep each other from work.
        patience(threads <= std::thread::hardware_concurrency() ? idle_spins : spins),
        done(threads) {
    try {
      for (std::size_t thread = 1; thread < threads; ++thread) {
        members.emplace_back([this, thread] { obey(thread); });
      }
    } catch (...) {  // those that started wait for an order already
      dismiss();
      throw;
    }
  }

  ~Crew() { dismiss(); }

  void dismiss() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      is_over = true;
      order.fetch_add(1, std::memory_order_release);
    }
    called.notify_all();
    for (std::thread& member : members) member.join();
  }

  void obey(std::size_t thread) {
    for (std::uint32_t seen = 0;;) {
      seen = next_order(seen);
      if (is_over) return;
      (*work)(thread);
      done.wait();
    }
  }

  // Waits for an order later than `seen`: awake for a while, then asleep, and awake again if told.
  std::uint32_t next_order(std::uint32_t seen) {
    for (;;) {
      for (int i = 0; i < patience; ++i) {
        const std::uint32_t latest = order.load(std::memory_order_acquire);
        if (latest != seen) return latest;
        pause();
      }
      std::unique_lock<std::mutex> lock(mutex);
      const std::uint32_t told = alarms;
      called.wait(lock, [&] {
        return order.load(std::memory_order_acquire) != seen || alarms != told;
      });
    }
  }

  const pid_t process;
  const int patience;
  Barrier done;
  std::mutex mutex;
  std::condition_variable called;
  std::atomic<std::uint32_t> order{0};
  std::uint32_t alarms = 0;  // guarded by `mutex`
  const std::function<void(std::size_t)>* work = nullptr;
  bool is_over = false;
  std::vector<std::thread> members;
};

ThreadPool::ThreadPool(std::size_t threads) : threads_(threads) {}

ThreadPool::~ThreadPool() {
  // In a forked process the threads are gone, and their handles can't be joined.
  if (crew_ && crew_->process != getpid()) crew_.release();
}

void ThreadPool::run(const std::function<void(std::size_t)>& work) {
  if (threads_ == 1) {
    work(0);
    return;
  }
  if (crew_ && crew_->process != getpid()) crew_.release();
  if (!crew_) crew_ = std::make_unique<Crew>(threads_);
  {
    const std::lock_guard<std::mutex> lock(crew_->mutex);
    crew_->work = &work;
    crew_->order.fetch_add(1, std::memory_order_release);
  }
  crew_->called.notify_all();
  work(0);
  crew_->done.wait();
}

void ThreadPool::wake() {
  if (!crew_ || crew_->process != getpid()) return;
  {
    const std::lock_guard<std::mutex> lock(crew_->mutex);
    ++crew_->alarms;
  }
  crew_->called.notify_all();
}

}  // namespace forerun
