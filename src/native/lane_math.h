// Registers of 16 lanes, whatever the instruction set makes of them; included by *_body.h alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace forerun {
namespace {

typedef float Lanes __attribute__((vector_size(64)));
typedef std::int32_t Sums __attribute__((vector_size(64)));

template <typename Vector>
inline __attribute__((always_inline)) void load(Vector& to, const void* from) {
  std::memcpy(&to, from, sizeof to);
}

template <typename Vector>
inline __attribute__((always_inline)) void store(void* to, const Vector& from) {
  std::memcpy(to, &from, sizeof from);
}

// The one number that `join`, which works on its first argument, makes of all lanes, by halves.
template <typename Vector, typename Join>
inline __attribute__((always_inline)) auto joined(const Vector& all, Join join) {
  Vector x = all;
  const Sums by_8 = {8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7};
  const Sums by_4 = {4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11};
  const Sums by_2 = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
  const Sums by_1 = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
  join(x, __builtin_shuffle(x, by_8));
  join(x, __builtin_shuffle(x, by_4));
  join(x, __builtin_shuffle(x, by_2));
  join(x, __builtin_shuffle(x, by_1));
  return x[0];
}

}  // namespace
}  // namespace forerun
