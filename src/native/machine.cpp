#include "machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "instruction_set.h"
#include "threads.h"

namespace forerun {
namespace {

constexpr std::align_val_t page{4096};
constexpr std::size_t block = 4096;
constexpr std::size_t meetings = 1000;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

struct Free {
  void operator()(std::uint8_t* data) const { ::operator delete[](data, page); }
};

std::uint64_t sum(const std::uint8_t* data, std::size_t bytes) {
#ifdef FORERUN_X86
  switch (instruction_set()) {
    case InstructionSet::avx512: return sum_avx512(data, bytes);
    case InstructionSet::avx2: return sum_avx2(data, bytes);
    case InstructionSet::portable: break;
  }
#endif
  return sum_portable(data, bytes);
}

}  // namespace

double read_bandwidth(std::size_t bytes, std::size_t threads, std::size_t tries) {
  const std::size_t blocks = std::max<std::size_t>(1, bytes / block);
  const std::unique_ptr<std::uint8_t[], Free> data(new (page) std::uint8_t[blocks * block]);
  ThreadPool pool(threads);
  // Written first: memory that nobody wrote is one page of zeros, read again and again.
  pool.run([&](std::size_t thread) {
    const Share share(blocks, thread, threads);
    std::memset(data.get() + share.first * block, 1, (share.last - share.first) * block);
  });
  double best = 0;
  std::atomic<std::uint64_t> total{0};  // somebody must want the sums, or none is computed
  for (std::size_t i = 0; i < tries; ++i) {
    const Clock::time_point begun = Clock::now();
    pool.run([&](std::size_t thread) {
      const Share share(blocks, thread, threads);
      total += sum(data.get() + share.first * block, (share.last - share.first) * block);
    });
    best = std::max(best, static_cast<double>(blocks * block) / seconds_since(begun));
  }
  return best;
}

double barrier_seconds(std::size_t threads, std::size_t batches) {
  ThreadPool pool(threads);
  Barrier barrier(threads);
  std::vector<double> times;
  pool.run([&](std::size_t thread) {
    for (std::size_t batch = 0; batch < batches; ++batch) {
      barrier.wait();
      const Clock::time_point begun = Clock::now();
      for (std::size_t i = 0; i < meetings; ++i) barrier.wait();
      if (thread == 0) times.push_back(seconds_since(begun) / meetings);
    }
  });
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace forerun
