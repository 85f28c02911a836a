#include "machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <vector>

#include "instruction_set.h"

namespace forerun {
namespace {

constexpr std::size_t page = 4096;
constexpr std::align_val_t alignment{page};
constexpr std::size_t meetings = 1000;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

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

void MemoryReader::Free::operator()(std::uint8_t* data) const {
  ::operator delete[](data, alignment);
}

MemoryReader::MemoryReader(std::size_t bytes, std::size_t threads)
    : pages_(std::max<std::size_t>(1, bytes / page)),
      data_(new (alignment) std::uint8_t[pages_ * page]),
      pool_(threads) {
  pool_.run([&](std::size_t thread) {
    const Share share(pages_, thread, threads);
    std::memset(data_.get() + share.first * page, 1, (share.last - share.first) * page);
  });
}

double MemoryReader::read() {
  std::atomic<std::uint64_t> total{0};  // somebody must want the sums, or none is computed
  const Clock::time_point begun = Clock::now();
  pool_.run([&](std::size_t thread) {
    const Share share(pages_, thread, pool_.threads());
    total += sum(data_.get() + share.first * page, (share.last - share.first) * page);
  });
  return static_cast<double>(pages_ * page) / seconds_since(begun);
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
