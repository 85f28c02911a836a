// Rows of floats whose columns are shared out over the threads of a pass.
//
// A thread's columns lie together, pages apart from the next thread's. A processor that sees a core
// go through memory fetches ahead for it. With rows side by side, what it fetched would be another
// thread's columns, and that thread's core would have to fetch them back before it can write.
#pragma once

#include <cstddef>
#include <vector>

#include "aligned.h"
#include "threads.h"

namespace forerun {

// The thread's part of the columns of a matrix product, or of what is made of one: whole groups
// (layout.h), or what is left. What a thread has computed it goes on with.
Share columns_of(std::size_t count, std::size_t thread, std::size_t threads);

class Columns {
 public:
  // Makes room; what the rows held is lost.
  void resize(std::size_t rows, std::size_t columns, std::size_t threads);

  Share of(std::size_t thread) const { return columns_of(columns_, thread, begins_.size()); }

  // The thread's columns of a row; the next row's are `stride` floats behind.
  float* row(std::size_t thread, std::size_t row) {
    return floats_.data() + begins_[thread] + row * stride(thread);
  }
  std::size_t stride(std::size_t thread) const {
    const Share own = of(thread);
    return own.last - own.first;
  }

  // Copies `count` columns of a row from `first` on, whosever they are.
  void copy(std::size_t row, std::size_t first, std::size_t count, float* to) const;

 private:
  std::size_t columns_ = 0;
  std::vector<std::size_t> begins_;  // of each thread's, in `floats_`
  PageFloats floats_;
};

}  // namespace forerun
