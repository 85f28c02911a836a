#include "normed_rows.h"

#include <algorithm>
#include <cmath>

#include "row_math.h"

namespace forerun {
namespace {

std::size_t parts_of(std::size_t width) { return (width + part - 1) / part; }

}  // namespace

void NormedRows::resize(std::size_t rows, std::size_t width, std::size_t threads,
                        bool keeps_floats) {
  rows_.resize(rows, width, keeps_floats);
  squares_.resize(threads);
  weighed_.resize(threads);
  factors_.resize(threads);
  for (std::size_t thread = 0; thread < threads; ++thread) {
    const auto [first, last] = columns_of(width, thread, threads);
    make_room(squares_[thread], parts_of(last - first) * rows);
    make_room(weighed_[thread], last - first);
    make_room(factors_[thread], rows);
  }
}

void NormedRows::put(std::size_t thread, std::size_t row, const float* x, const float* weight) {
  const auto [first, last] = columns_of(rows_.inputs(), thread, factors_.size());
  const std::size_t count = last - first, rows = rows_.rows();
  if (count == 0) return;
  float* const weighed = weighed_[thread].data();
  row_math().weigh_parts(x, weight, count, weighed, squares_[thread].data() + row, rows);
  rows_.put(row, first, count, weighed);
}

const float* NormedRows::factors(std::size_t thread, float epsilon) {
  const std::size_t rows = rows_.rows(), width = rows_.inputs(), threads = factors_.size();
  float* const factors = factors_[thread].data();
  std::fill_n(factors, rows, 0.0f);
  for (std::size_t other = 0; other < threads; ++other) {
    const auto [first, last] = columns_of(width, other, threads);
    for (std::size_t i = 0; i < parts_of(last - first); ++i) {
      row_math().add(squares_[other].data() + i * rows, rows, factors);
    }
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const float mean = factors[row] / static_cast<float>(width);
    factors[row] = 1.0f / std::sqrt(mean + epsilon);
  }
  return factors;
}

}  // namespace forerun
