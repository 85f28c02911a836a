// Weights, packed once at load for the kernels of multiply.h, as layout.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "layout.h"
#include "stored_blocks.h"

namespace forerun {

class Matrix {
 public:
  // `data`: outputs * stored_row_bytes(type, inputs) bytes, row by row, of any alignment.
  // Throws std::invalid_argument if a side is zero or a row is not made of whole blocks.
  Matrix(TensorType type, const std::uint8_t* data, std::size_t outputs, std::size_t inputs);

  Layout layout() const { return layout_; }
  std::size_t outputs() const { return outputs_; }
  std::size_t inputs() const { return inputs_; }
  std::size_t panels() const { return (outputs_ + panel_outputs - 1) / panel_outputs; }
  std::size_t panel_bytes() const { return panel_bytes_; }
  std::size_t bytes() const { return panels() * panel_bytes_; }  // what a pass reads

  // Panels begin on cache lines; the outputs that the last one lacks are zeros, which no kernel
  // writes out.
  const std::uint8_t* panel(std::size_t index) const { return data_.get() + index * panel_bytes_; }

 private:
  void pack_blocks(TensorType type, const std::uint8_t* stored, std::size_t output);
  void pack_floats(const std::uint8_t* stored, std::size_t output);
  std::uint8_t* packed(std::size_t output) {
    return data_.get() + output / panel_outputs * panel_bytes_;
  }

  Layout layout_;
  std::size_t outputs_;
  std::size_t inputs_;
  std::size_t panel_bytes_;
  std::shared_ptr<std::uint8_t> data_;
};

}  // namespace forerun
