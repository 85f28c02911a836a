// Weights, packed once at load for the kernels of multiply.h.
//
// A panel holds 16 outputs. The quantised types are cut along the inputs into groups of 32:
//
//   q4_0, q4_1  256 bytes a group: 4 chunks of 64; byte 4 o + i of chunk c has input 4 c + i of
//               output o in its low half and input 16 + 4 c + i in its high half, unsigned;
//   q8_0        512 bytes a group: 8 chunks of 64; byte 4 o + i of chunk c is input 4 c + i of
//               output o plus 128, so unsigned too.
//
// A chunk is one operand of four products per 32-bit lane (vpdpbusd). Behind the values of all
// groups come their scales, 16 half floats a group, q4_1 with 16 minima after them. The float
// types store 16 outputs side by side for each input. Panels begin on cache lines; the outputs
// that the last one lacks are zeros, which no kernel writes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace forerun {

enum class TensorType { f32, f16, bf16, q4_0, q4_1, q8_0 };

constexpr std::size_t panel_outputs = 16;
constexpr std::size_t group_inputs = 32;

constexpr bool is_quantised(TensorType type) {
  return type == TensorType::q4_0 || type == TensorType::q4_1 || type == TensorType::q8_0;
}

// Bytes of one row of `inputs` weights as a GGUF file stores it.
// Throws std::invalid_argument if a quantised row is not made of whole groups.
std::size_t stored_row_bytes(TensorType type, std::size_t inputs);

class Matrix {
 public:
  // `data`: outputs * stored_row_bytes(type, inputs) bytes, row by row, of any alignment.
  // Throws std::invalid_argument if a side is zero or a row is not made of whole groups.
  Matrix(TensorType type, const std::uint8_t* data, std::size_t outputs, std::size_t inputs);

  TensorType type() const { return type_; }
  std::size_t outputs() const { return outputs_; }
  std::size_t inputs() const { return inputs_; }
  std::size_t groups() const { return inputs_ / group_inputs; }
  std::size_t panels() const { return (outputs_ + panel_outputs - 1) / panel_outputs; }
  std::size_t panel_bytes() const { return panel_bytes_; }
  std::size_t bytes() const { return panels() * panel_bytes_; }  // what a pass reads

  // The values of a panel, and the scales of a quantised one.
  const std::uint8_t* panel(std::size_t index) const { return data_.get() + index * panel_bytes_; }
  const std::uint16_t* panel_scales(std::size_t index) const {
    return reinterpret_cast<const std::uint16_t*>(panel(index) + scales_at_);
  }

 private:
  TensorType type_;
  std::size_t outputs_;
  std::size_t inputs_;
  std::size_t scales_at_;
  std::size_t panel_bytes_;
  std::shared_ptr<std::uint8_t> data_;
};

}  // namespace forerun
