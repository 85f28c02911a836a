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

void Activations::set_row(std::size_t row, const float* x) {
  if (row >= rows_) {
    throw std::out_of_range("The pass has no row " + std::to_string(row) + ".");
  }
  std::copy(x, x + inputs_, floats_.begin() + static_cast<std::ptrdiff_t>(row * inputs_));
  const std::size_t first = row / tile_rows * tile_rows;
  const std::size_t lane = row - first;
  const std::size_t at = first * groups_ + lane;
  const QuantisedRow to{values_.data() + first * groups_ * group_inputs + 4 * lane,
                        scales_.data() + at,
                        scaled_sums_.data() + at,
                        starts_4_.data() + at,
                        starts_8_.data() + at,
                        starts_16_.data() + 2 * first * groups_ + lane,
                        std::min(tile_rows, rows_ - first)};
  kernels().quantise(x, groups_, to);
}

ActivationTile Activations::tile(std::size_t index) const {
  const std::size_t first = index * tile_rows;
  const std::size_t at = first * groups_;
  return {std::min(tile_rows, rows_ - first),
          floats_.data() + first * inputs_,
          values_.data() + at * group_inputs,
          scales_.data() + at,
          scaled_sums_.data() + at,
          starts_4_.data() + at,
          starts_8_.data() + at,
          starts_16_.data() + 2 * at};
}

}  // namespace forerun
