// Numbers that begin on a cache line, or on a page of memory.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace forerun {

constexpr std::size_t cache_line = 64;
constexpr std::size_t memory_page = 4096;

template <typename T, std::size_t alignment>
struct Aligned {
  using value_type = T;
  template <typename U>
  struct rebind {
    using other = Aligned<U, alignment>;
  };
  Aligned() = default;
  template <typename U>
  Aligned(const Aligned<U, alignment>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(alignment)));
  }
  void deallocate(T* data, std::size_t) {
    ::operator delete(data, std::align_val_t(alignment));
  }
  friend bool operator==(const Aligned&, const Aligned&) { return true; }
  friend bool operator!=(const Aligned&, const Aligned&) { return false; }
};

using AlignedFloats = std::vector<float, Aligned<float, cache_line>>;
using AlignedBytes = std::vector<std::byte, Aligned<std::byte, cache_line>>;
using PageFloats = std::vector<float, Aligned<float, memory_page>>;

// Sees to it that a buffer holds so many; one that held more keeps them.
template <typename Vector>
void make_room(Vector& values, std::size_t size) {
  if (values.size() < size) values.resize(size);
}

}  // namespace forerun
