#pragma once

// Vector whose elements begin at a cache line. For arrays that kernels walk in whole lines: at the offset of 16 bytes that large
// allocations come with, every vector they load or store straddles two lines.
// Same rules as std::vector; memory exhausted ends the process as everywhere.

#include <cstddef>
#include <new>
#include <vector>

namespace sluice {

inline constexpr std::size_t kCacheLineBytes = 64;

template <typename T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <typename Other>
  explicit LineAllocator(const LineAllocator<Other>&) {}

  T* allocate(std::size_t count) { return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kCacheLineBytes})); }
  // Without the size: clang has the sized form only on request.
  void deallocate(T* from, std::size_t) { ::operator delete (from, std::align_val_t{kCacheLineBytes}); }
  friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
};

template <typename T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace sluice
