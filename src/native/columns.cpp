#include "columns.h"

#include <algorithm>

#include "layout.h"

namespace forerun {

Share columns_of(std::size_t count, std::size_t thread, std::size_t threads) {
  Share share((count + group_inputs - 1) / group_inputs, thread, threads);
  share.first = std::min(share.first * group_inputs, count);
  share.last = std::min(share.last * group_inputs, count);
  return share;
}

void Columns::resize(std::size_t rows, std::size_t columns, std::size_t threads) {
  constexpr std::size_t page_floats = memory_page / sizeof(float);
  columns_ = columns;
  begins_.assign(threads, 0);
  std::size_t end = 0;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    begins_[thread] = end;
    end += (rows * stride(thread) / page_floats + 1) * page_floats;
  }
  make_room(floats_, end);
}

void Columns::copy(std::size_t row, std::size_t first, std::size_t count, float* to) const {
  const std::size_t last = first + count;
  for (std::size_t thread = 0; thread < begins_.size(); ++thread) {
    const Share own = of(thread);
    const std::size_t from = std::max(first, own.first), end = std::min(last, own.last);
    if (from >= end) continue;
    const float* const begin = floats_.data() + begins_[thread] + row * (own.last - own.first);
    to = std::copy(begin + (from - own.first), begin + (end - own.first), to);
  }
}

}  // namespace forerun
