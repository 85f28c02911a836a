// Memory for packed weights, on huge pages where the system has them.
//
// A pass reads all weights once, far more than the processor keeps addresses of pages for: with
// pages of 4 KiB it waits for those addresses, the more so in a virtual machine. Matrices are
// smaller than a huge page or little larger, so they share slabs, side by side as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace forerun {

// `bytes` zeros that begin on a cache line. Their slab is freed with the last matrix in it.
// May be called by several threads at a time. Throws std::bad_alloc.
std::shared_ptr<std::uint8_t> weight_memory(std::size_t bytes);

}  // namespace forerun
