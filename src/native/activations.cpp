#include "activations.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "multiply_kernels.h"

namespace forerun {

// Where the rows of a tile are, and its numbers.
struct Activations::Tile {
  std::size_t first, rows, stride;
  std::int8_t* values;
  float* scales;
  std::int32_t* starts;  // among the numbers, behind those that are floats
};

void Activations::resize(std::size_t rows, std::size_t inputs, bool keeps_floats) {
  const std::size_t groups = inputs % group_inputs == 0 ? inputs / group_inputs : 0;
  const std::size_t whole = rows / tile_rows, left = rows % tile_rows;
  const std::size_t numbers = whole * group_numbers(tile_rows) + group_numbers(left);
  keeps_floats_ = keeps_floats;
  if (keeps_floats) make_room(floats_, rows * inputs);
  make_room(values_, rows * groups * group_inputs);
  make_room(numbers_, groups * numbers * sizeof(float));
  rows_ = rows;
  inputs_ = inputs;
  groups_ = groups;
}

Activations::Tile Activations::tile_of(std::size_t row) const {
  const std::size_t first = row / tile_rows * tile_rows;
  const std::size_t rows = std::min(tile_rows, rows_ - first);
  // Kernels read what others have written; both see plain numbers in memory.
  auto* const values = const_cast<std::byte*>(values_.data()) + first * groups_ * group_inputs;
  auto* const numbers = const_cast<std::byte*>(numbers_.data()) +
                        first / tile_rows * groups_ * group_numbers(tile_rows) * sizeof(float);
  return {first,
          rows,
          group_numbers(rows),
          reinterpret_cast<std::int8_t*>(values),
          reinterpret_cast<float*>(numbers),
          reinterpret_cast<std::int32_t*>(numbers) + 2 * rows};
}

void Activations::describe(std::size_t tile, ActivationTile& to) const {
  const Tile from = tile_of(tile * tile_rows);
  to.rows = from.rows;
  to.floats = keeps_floats_ ? floats_.data() + from.first * inputs_ : nullptr;
  to.values = from.values;
  to.stride = from.stride;
  to.scales = from.scales;
  to.scaled_sums = from.scales + from.rows;
  to.starts_4 = from.starts;
  to.starts_8 = from.starts + from.rows;
  to.starts_16 = from.starts + 2 * from.rows;
}

void Activations::put(std::size_t row, std::size_t first, std::size_t count, const float* x) {
  if (row >= rows_ || first + count > inputs_) {
    throw std::out_of_range("The pass has no such row " + std::to_string(row) + ".");
  }
  if (keeps_floats_) std::copy_n(x, count, this->row(row) + first);
  quantise(row, first, count, x);
}

void Activations::quantise(std::size_t row, std::size_t first, std::size_t count, const float* x) {
  if (groups_ == 0) return;
  const Tile tile = tile_of(row);
  const std::size_t lane = row - tile.first, group = first / group_inputs;
  const QuantisedRow to{tile.values + (group * group_inputs) * tile.rows + 4 * lane,
                        tile.scales + group * tile.stride + lane,
                        tile.starts + group * tile.stride + lane, tile.rows, tile.stride};
  kernels().quantise(x, count / group_inputs, to);
}

}  // namespace forerun
