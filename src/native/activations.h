// The rows of a pass, made ready to be multiplied.
//
// Each row is kept as floats if these are wanted, and, if its length is a multiple of 32, in signed
// 8 bits with one scale per group of 32 inputs: the group's largest magnitude / 127, values rounded
// half to even.
// A group of magnitudes below 2^-100 counts as zeros. A group with an infinity or a NaN has the
// scale NaN, so that every output of that row becomes NaN and none of another row.
//
// Rows are stored in tiles of 16, the last one of what is left; in a tile of R rows the values are
// interleaved [inputs / 4][R][4]. The numbers of a group lie together, the scales of all rows, then
// the other numbers, on cache lines of their own: groups are put by different threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "layout.h"

namespace forerun {

constexpr std::size_t tile_rows = 16;

// Of 4 bytes each, of a group in a tile of so many rows.
constexpr std::size_t group_numbers(std::size_t rows) {
  constexpr std::size_t of_line = cache_line / 4;
  return (6 * rows + of_line - 1) / of_line * of_line;
}

// What the kernels read of one tile.
struct ActivationTile {
  std::size_t rows;
  const float* floats;           // [rows][inputs], or null
  const std::int8_t* values;     // [inputs / 4][rows][4]
  std::size_t stride;            // from a group's numbers to the next one's
  const float* scales;           // [groups * stride + row]
  const float* scaled_sums;      // scale * sum of values
  const std::int32_t* starts_4;  // -8 * sum of values, the offset of 4 bits
  const std::int32_t* starts_8;  // -128 * sum of values, the offset of 8 bits
  const std::int32_t* starts_16;  // the same for the first half of a group; for the other `rows` on
};

class Activations {
 public:
  Activations() = default;

  // Makes room; what the rows held is lost. Allocates only if it needs more than ever before.
  // Floats are needed by weights that are floats.
  void resize(std::size_t rows, std::size_t inputs, bool keeps_floats);
  bool keeps_floats() const { return keeps_floats_; }

  // Takes `count` inputs of a row from `first` on: both whole groups, or `count` what is left.
  // Different threads may put different rows, or different groups of a row.
  void put(std::size_t row, std::size_t first, std::size_t count, const float* x);

  // The floats of a row, if they are kept: to be written and then quantised, if `put` is not used.
  float* row(std::size_t index) { return floats_.data() + index * inputs_; }
  void quantise(std::size_t row) { quantise(row, 0, inputs_, this->row(row)); }

  std::size_t rows() const { return rows_; }
  std::size_t inputs() const { return inputs_; }
  std::size_t tiles() const { return (rows_ + tile_rows - 1) / tile_rows; }
  const float* row(std::size_t index) const { return floats_.data() + index * inputs_; }

  // Writes what kernels read of a tile.
  void describe(std::size_t tile, ActivationTile& to) const;

 private:
  struct Tile;
  Tile tile_of(std::size_t row) const;
  void quantise(std::size_t row, std::size_t first, std::size_t count, const float* x);

  std::size_t rows_ = 0;
  std::size_t inputs_ = 0;
  std::size_t groups_ = 0;  // 0 if the length is no multiple of 32
  bool keeps_floats_ = false;
  std::vector<float> floats_;
  AlignedBytes values_;
  AlignedBytes numbers_;
};

}  // namespace forerun
