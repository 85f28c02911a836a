// The rows of a pass, made ready to be multiplied.
//
// Each row is kept as floats, and, if its length is a multiple of 32, in signed 8 bits with one
// scale per group of 32 inputs: the group's largest magnitude / 127, values rounded half to even.
// A group of magnitudes below 2^-100 counts as zeros. A group with an infinity or a NaN has the
// scale NaN, so that every output of that row becomes NaN and none of another row.
//
// Rows are stored in tiles of 16, the last one of what is left; in a tile of R rows the values are
// interleaved [inputs / 4][R][4], the scales and sums [groups][R].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout.h"

namespace forerun {

constexpr std::size_t tile_rows = 16;

// What the kernels read of one tile.
struct ActivationTile {
  std::size_t rows;
  const float* floats;           // [rows][inputs]
  const std::int8_t* values;     // [inputs / 4][rows][4]
  const float* scales;           // [groups][rows]
  const float* scaled_sums;      // [groups][rows]: scale * sum of values
  const std::int32_t* starts_4;  // [groups][rows]: -8 * sum of values, the offset of 4 bits
  const std::int32_t* starts_8;  // [groups][rows]: -128 * sum of values, the offset of 8 bits
  const std::int32_t* starts_16;  // [groups][2][rows]: the same for the halves of a group
};

class Activations {
 public:
  Activations() = default;

  // Makes room; what the rows held is lost. Allocates only if it needs more than ever before.
  void resize(std::size_t rows, std::size_t inputs);

  // The floats of a row, to be written and then quantised; any thread.
  float* row(std::size_t index) { return floats_.data() + index * inputs_; }

  // Makes 8 bits of a row's floats, or of `count` from `first` on: both whole groups, or `count`
  // what is left. Different threads may do different rows, or different groups of a row.
  void quantise(std::size_t row) { quantise(row, 0, inputs_); }
  void quantise(std::size_t row, std::size_t first, std::size_t count);

  std::size_t rows() const { return rows_; }
  std::size_t inputs() const { return inputs_; }
  std::size_t tiles() const { return (rows_ + tile_rows - 1) / tile_rows; }
  const float* row(std::size_t index) const { return floats_.data() + index * inputs_; }

  // Writes what kernels read of a tile.
  void describe(std::size_t tile, ActivationTile& to) const {
    const std::size_t first = tile * tile_rows, at = first * groups_;
    to.rows = std::min(tile_rows, rows_ - first);
    to.floats = floats_.data() + first * inputs_;
    to.values = values_.data() + at * group_inputs;
    to.scales = scales_.data() + at;
    to.scaled_sums = scaled_sums_.data() + at;
    to.starts_4 = starts_4_.data() + at;
    to.starts_8 = starts_8_.data() + at;
    to.starts_16 = starts_16_.data() + 2 * at;
  }

 private:
  std::size_t rows_ = 0;
  std::size_t inputs_ = 0;
  std::size_t groups_ = 0;  // 0 if the length is no multiple of 32
  std::vector<float> floats_;
  std::vector<std::int8_t> values_;
  std::vector<float> scales_;
  std::vector<float> scaled_sums_;
  std::vector<std::int32_t> starts_4_;
  std::vector<std::int32_t> starts_8_;
  std::vector<std::int32_t> starts_16_;
};

}  // namespace forerun
