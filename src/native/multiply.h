// Rows of activations times a packed matrix, to the same bits on every instruction set.
//
// Quantised weights: the products of a group of 32 inputs are summed as integers, exactly; then,
// groups ascending, total = fma(weight scale * activation scale, sum, total) and, with minima, also
// total = fma(minimum, activation scale * sum of activations, total). Where 16 inputs have a scale
// of their own, they have a sum and an fma of their own, the first 16 of a group before the last.
// A scale or minimum that is a factor times a half float is that product, rounded once. Float
// weights: inputs ascending, total = fma(weight, activation, total). At last comes the row's factor,
// if it has one: total * factor. Nothing depends on the other rows of the pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "activations.h"
#include "instruction_set.h"
#include "matrix.h"

namespace forerun {

// Where the products go.
struct Results {
  float* out;  // [row * stride + output], of the first panel's outputs on
  std::size_t stride;
  const float* factors = nullptr;  // of each row; null: 1
};

// Writes the products of all rows with the outputs of panels [first_panel, last_panel). Threads may
// multiply disjoint panels at a time.
// `next`, if not null, is the panel that the thread will need after these: it is fetched early.
// Throws std::invalid_argument if the inputs differ or the panels are none of the matrix.
void multiply(const Matrix& w, const Activations& x, std::size_t first_panel,
              std::size_t last_panel, const Results& to, const std::uint8_t* next = nullptr);

// Writes inputs [first, last) of one row of the matrix to `out`, as floats, to the bits of the gguf
// package; `first` begins a group.
// Throws std::out_of_range if there is no such output or input.
void dequantise(const Matrix& w, std::size_t output, std::size_t first, std::size_t last,
                float* out);

}  // namespace forerun
