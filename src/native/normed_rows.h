// Rows divided by the root of their mean square, times a weight for each column (RMSNorm, Zhang and
// Sennrich 2019), ready to be multiplied.
//
// A row's root is one factor for all of its columns, so products with the row need it only at
// their end. Until then threads know nothing of each other's columns: each puts its own, with the
// sums of their squares, and whoever multiplies makes the factors of all of them.
#pragma once

#include <cstddef>
#include <vector>

#include "activations.h"
#include "aligned.h"
#include "columns.h"

namespace forerun {

class NormedRows {
 public:
  // Makes room; what the rows held is lost.
  void resize(std::size_t rows, std::size_t width, std::size_t threads, bool keeps_floats);

  // Writes the thread's columns of a row, `x` times `weight`; both begin at the first of these.
  void put(std::size_t thread, std::size_t row, const float* x, const float* weight);

  // Once all columns are put: what products with each row are to be multiplied by. Each thread has
  // its own, which hold until its next call.
  const float* factors(std::size_t thread, float epsilon);

  // The rows without their factors.
  const Activations& rows() const { return rows_; }

 private:
  Activations rows_;
  // Of each thread: sums of squares of its parts, [parts][rows]; a row's columns; factors.
  std::vector<AlignedFloats> squares_, weighed_, factors_;
};

}  // namespace forerun
