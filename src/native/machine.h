// What the machine gives a pass: how fast its threads read memory, and how soon they meet.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forerun {

// Bytes a second that `threads` threads read together from memory of this size, each its share from
// end to end: the best of `tries`, of which none is the first touch. Throws std::bad_alloc.
double read_bandwidth(std::size_t bytes, std::size_t threads, std::size_t tries);

// Seconds from one meeting of a barrier (threads.h) to the next, all threads doing nothing else:
// the median over `batches` of 1000 meetings.
double barrier_seconds(std::size_t threads, std::size_t batches);

// The sum of the 64-bit words, modulo 2^64, for one instruction set each.
// `data` begins on a cache line; `bytes` is a multiple of 512.
std::uint64_t sum_portable(const std::uint8_t* data, std::size_t bytes);
std::uint64_t sum_avx2(const std::uint8_t* data, std::size_t bytes);
std::uint64_t sum_avx512(const std::uint8_t* data, std::size_t bytes);

}  // namespace forerun
