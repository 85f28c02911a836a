// Floats that begin on a cache line: what two threads write side by side then shares none.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace forerun {

constexpr std::size_t cache_line = 64;

template <typename T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <typename U>
  Aligned(const Aligned<U>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(cache_line)));
  }
  void deallocate(T* data, std::size_t) {
    ::operator delete(data, std::align_val_t(cache_line));
  }
  friend bool operator==(const Aligned&, const Aligned&) { return true; }
  friend bool operator!=(const Aligned&, const Aligned&) { return false; }
};

using AlignedFloats = std::vector<float, Aligned<float>>;

}  // namespace forerun
