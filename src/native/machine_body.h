// The sum of machine.h, for whatever instruction set the including file is compiled for.
//
// Included by machine_*.cpp alone. All is in an unnamed namespace, so that no linker can take one
// set's function for another's.
#pragma once

#include <cstring>

#include "machine.h"

namespace forerun {
namespace {

typedef std::uint64_t Words __attribute__((vector_size(64)));

// As the product kernels do, it fetches ahead into the second level: without, one core reads less.
constexpr std::size_t ahead = 4096;

inline std::uint64_t sum_words(const std::uint8_t* data, std::size_t bytes) {
  Words sums[8] = {};
  for (std::size_t at = 0; at < bytes; at += sizeof sums) {
    for (std::size_t i = 0; i < 8; ++i) {
      Words words;
      std::memcpy(&words, data + at + i * sizeof words, sizeof words);
      __builtin_prefetch(data + at + ahead + i * sizeof words, 0, 2);
      sums[i] += words;
    }
  }
  std::uint64_t total = 0;
  for (const Words& sum : sums) {
    for (std::size_t i = 0; i < 8; ++i) total += sum[i];
  }
  return total;
}

}  // namespace
}  // namespace forerun
