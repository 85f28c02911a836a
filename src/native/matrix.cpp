#include "matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "multiply.h"
#include "small_floats.h"
#include "weight_memory.h"

namespace forerun {

namespace {

std::size_t float_bytes(TensorType type) { return type == TensorType::f32 ? 4 : 2; }

// Half floats before the values of a stored group: its scale, and in q4_1 its minimum.
std::size_t stored_halves(TensorType type) { return type == TensorType::q4_1 ? 2 : 1; }

std::size_t stored_values(TensorType type) { return type == TensorType::q8_0 ? 32 : 16; }

std::size_t stored_group(TensorType type) { return 2 * stored_halves(type) + stored_values(type); }

std::size_t round_up(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }

// Value byte j of a stored group belongs in chunk j / 4; a byte of two 4-bit weights, of inputs j
// and 16 + j, does so as a whole.
void pack_group(TensorType type, const std::uint8_t* stored, std::size_t lane,
                std::uint8_t* values, std::uint16_t* scales) {
  const std::size_t halves = stored_halves(type);
  for (std::size_t i = 0; i < halves; ++i) {
    std::memcpy(scales + i * panel_outputs + lane, stored + 2 * i, 2);
  }
  stored += 2 * halves;
  const std::uint8_t bias = type == TensorType::q8_0 ? 0x80 : 0;  // + 128, modulo 256
  for (std::size_t j = 0; j < stored_values(type); ++j) {
    values[j / 4 * 64 + 4 * lane + j % 4] = stored[j] ^ bias;
  }
}

}  // namespace

std::size_t stored_row_bytes(TensorType type, std::size_t inputs) {
  if (!is_quantised(type)) return inputs * float_bytes(type);
  if (inputs % group_inputs != 0) {
    throw std::invalid_argument("Rows of " + std::to_string(inputs) +
                                " weights are not made of groups of 32.");
  }
  return inputs / group_inputs * stored_group(type);
}

Matrix::Matrix(TensorType type, const std::uint8_t* data, std::size_t outputs, std::size_t inputs)
    : type_(type), outputs_(outputs), inputs_(inputs) {
  if (outputs == 0 || inputs == 0) throw std::invalid_argument("A matrix has no empty side.");
  const std::size_t row_bytes = stored_row_bytes(type, inputs);
  const bool quantised = is_quantised(type);
  const std::size_t group_values = panel_outputs * stored_values(type);
  const std::size_t group_halves = panel_outputs * stored_halves(type);
  scales_at_ = quantised ? groups() * group_values : inputs * panel_outputs * float_bytes(type);
  panel_bytes_ = round_up(scales_at_ + (quantised ? groups() * group_halves * 2 : 0), 64);
  data_ = weight_memory(bytes());

  for (std::size_t output = 0; output < outputs; ++output) {
    const std::uint8_t* stored = data + output * row_bytes;
    std::uint8_t* values = data_.get() + output / panel_outputs * panel_bytes_;
    const std::size_t lane = output % panel_outputs;
    if (quantised) {
      auto* scales = reinterpret_cast<std::uint16_t*>(values + scales_at_);
      for (std::size_t group = 0; group < groups(); ++group) {
        pack_group(type, stored + group * stored_group(type), lane, values + group * group_values,
                   scales + group * group_halves);
      }
    } else {
      const std::size_t size = float_bytes(type);
      for (std::size_t input = 0; input < inputs; ++input) {
        std::memcpy(values + (input * panel_outputs + lane) * size, stored + input * size, size);
      }
    }
  }
}

namespace {

float packed_float(TensorType type, const std::uint8_t* values, std::size_t index) {
  if (type == TensorType::f32) {
    float value;
    std::memcpy(&value, values + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, values + 2 * index, 2);
  return type == TensorType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

// The products and sums are rounded one by one, as the gguf package does.
void dequantise_group(TensorType type, const std::uint8_t* values, const std::uint16_t* scales,
                      std::size_t lane, float* out) {
  const float scale = half_to_float(scales[lane]);
  if (type == TensorType::q8_0) {
    for (std::size_t i = 0; i < group_inputs; ++i) {
      out[i] = scale * static_cast<float>(values[i / 4 * 64 + 4 * lane + i % 4] - 128);
    }
    return;
  }
  const bool has_minimum = type == TensorType::q4_1;
  const float minimum = has_minimum ? half_to_float(scales[panel_outputs + lane]) : 0.0f;
  for (std::size_t i = 0; i < group_inputs / 2; ++i) {
    const int pair = values[i / 4 * 64 + 4 * lane + i % 4];
    for (std::size_t part = 0; part < 2; ++part) {
      const int value = part == 0 ? pair & 15 : pair >> 4;
      out[16 * part + i] = has_minimum ? scale * static_cast<float>(value) + minimum
                                       : scale * static_cast<float>(value - 8);
    }
  }
}

}  // namespace

void dequantise_row(const Matrix& w, std::size_t output, float* out) {
  if (output >= w.outputs()) {
    throw std::out_of_range("The matrix has no output " + std::to_string(output) + ".");
  }
  const std::size_t lane = output % panel_outputs;
  const std::uint8_t* values = w.panel(output / panel_outputs);
  if (!is_quantised(w.type())) {
    for (std::size_t input = 0; input < w.inputs(); ++input) {
      out[input] = packed_float(w.type(), values, input * panel_outputs + lane);
    }
    return;
  }
  const std::uint16_t* scales = w.panel_scales(output / panel_outputs);
  for (std::size_t group = 0; group < w.groups(); ++group) {
    dequantise_group(w.type(), values + group * panel_outputs * stored_values(w.type()),
                     scales + group * panel_outputs * stored_halves(w.type()), lane,
                     out + group * group_inputs);
  }
}

}  // namespace forerun
