// What the machine gives a pass: how fast its threads read memory, and how soon they meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "threads.h"

namespace forerun {

// Memory to read, and threads that read it together, each its share from end to end.
class MemoryReader {
 public:
  // Takes the memory, rounded down to pages of 4096 bytes, and writes it: memory that nobody wrote
  // is one page of zeros, read again and again. Throws std::bad_alloc.
  MemoryReader(std::size_t bytes, std::size_t threads);

  // Reads all of it once and returns the bytes a second.
  double read();

 private:
  struct Free {
    void operator()(std::uint8_t* data) const;
  };

  std::size_t pages_;
  std::unique_ptr<std::uint8_t[], Free> data_;
  ThreadPool pool_;
};

// Seconds from one meeting of a barrier (threads.h) to the next, all threads doing nothing else:
// the median over `batches` of 1000 meetings.
double barrier_seconds(std::size_t threads, std::size_t batches);

// The sum of the 64-bit words, modulo 2^64, for one instruction set each.
// `data` begins on a cache line; `bytes` is a multiple of 512.
std::uint64_t sum_portable(const std::uint8_t* data, std::size_t bytes);
std::uint64_t sum_avx2(const std::uint8_t* data, std::size_t bytes);
std::uint64_t sum_avx512(const std::uint8_t* data, std::size_t bytes);

}  // namespace forerun
