#include "activations.h"

#include <stdexcept>
#include <string>

#include "multiply_kernels.h"

namespace forerun {

namespace {

template <typename Value>
void grow(std::vector<Value>& values, std::size_t size) {
  if (values.size() < size) values.resize(size);
}

}  // namespace

void Activations::resize(std::size_t rows, std::size_t inputs) {
  const std::size_t groups = inputs % group_inputs == 0 ? inputs / group_inputs : 0;
  grow(floats_, rows * inputs);
  grow(values_, rows * groups * group_inputs);
  grow(scales_, rows * groups);
  grow(scaled_sums_, rows * groups);
  grow(starts_4_, rows * groups);
  grow(starts_8_, rows * groups);
  grow(starts_16_, 2 * rows * groups);
  rows_ = rows;
  inputs_ = inputs;
  groups_ = groups;
}

void Activations::quantise(std::size_t row, std::size_t first, std::size_t count) {
  if (row >= rows_ || first + count > inputs_) {
    throw std::out_of_range("The pass has no such row " + std::to_string(row) + ".");
  }
  if (groups_ == 0) return;
  const std::size_t start = row / tile_rows * tile_rows, lane = row - start;
  const std::size_t rows = std::min(tile_rows, rows_ - start);
  const std::size_t at = start * groups_ + first / group_inputs * rows + lane;
  const QuantisedRow to{values_.data() + (at - lane) * group_inputs + 4 * lane,
                        scales_.data() + at,
                        scaled_sums_.data() + at,
                        starts_4_.data() + at,
                        starts_8_.data() + at,
                        starts_16_.data() + 2 * (at - lane) + lane,
                        rows};
  kernels().quantise(this->row(row) + first, count / group_inputs, to);
}

}  // namespace forerun
