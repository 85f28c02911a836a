#include "matrix.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "multiply.h"
#include "small_floats.h"
#include "weight_memory.h"

namespace forerun {

namespace {

std::size_t float_bytes(Layout layout) { return layout == Layout::f32 ? 4 : 2; }

std::size_t round_up(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }

// Where the weights of inputs i to i + 3 of a group lie; in 4 bits also those of i + 16 to i + 19.
std::size_t chunk_at(std::size_t i, std::size_t lane) { return 16 * i + 4 * lane; }

void pack_group(const LayoutTraits& traits, const std::uint8_t* values, std::size_t lane,
                std::uint8_t* packed) {
  for (std::size_t i = 0; i < traits.group_bytes / panel_outputs; i += 4) {
    std::uint8_t four[4];
    for (std::size_t j = 0; j < 4; ++j) {
      const int high = traits.bits == 4 ? values[16 + i + j] << 4 : 0;
      four[j] = static_cast<std::uint8_t>(values[i + j] | high);
    }
    std::memcpy(packed + chunk_at(i, lane), four, sizeof four);
  }
}

void pack_scales(const LayoutTraits& traits, const UnpackedBlock& block, std::size_t lane,
                 std::uint8_t* packed) {
  for (std::size_t i = 0; 2 * panel_outputs * i < traits.half_bytes; ++i) {
    std::memcpy(packed + 2 * (panel_outputs * i + lane), &block.halves[i], 2);
  }
  if (!traits.has_blocks) return;
  packed += traits.half_bytes + lane;
  for (const auto& factors : block.factors) {
    packed[0] = factors[0];
    packed[panel_outputs] = factors[1];
    packed += 2 * panel_outputs;
  }
}

}  // namespace

Matrix::Matrix(TensorType type, const std::uint8_t* data, std::size_t outputs, std::size_t inputs)
    : layout_(layout_of(type)), outputs_(outputs), inputs_(inputs) {
  if (outputs == 0 || inputs == 0) throw std::invalid_argument("A matrix has no empty side.");
  const std::size_t row_bytes = stored_row_bytes(type, inputs);
  const LayoutTraits traits = traits_of(layout_);
  panel_bytes_ = is_quantised(layout_)
                     ? inputs / group_inputs / traits.block_groups * traits.block_bytes
                     : inputs * panel_outputs * float_bytes(layout_);
  panel_bytes_ = round_up(panel_bytes_, 64);
  data_ = weight_memory(bytes());
  for (std::size_t output = 0; output < outputs; ++output, data += row_bytes) {
    if (is_quantised(layout_)) {
      pack_blocks(type, data, output);
    } else {
      pack_floats(data, output);
    }
  }
}

void Matrix::pack_blocks(TensorType type, const std::uint8_t* stored, std::size_t output) {
  const LayoutTraits traits = traits_of(layout_);
  const std::size_t block_bytes = stored_row_bytes(type, stored_inputs(type));
  const std::size_t lane = output % panel_outputs;
  std::uint8_t* to = packed(output);
  for (std::size_t first = 0; first < inputs_; first += stored_inputs(type)) {
    const UnpackedBlock block = unpack_block(type, stored);
    pack_scales(traits, block, lane, to);
    std::uint8_t* values = to + traits.block_scale_bytes;
    for (std::size_t i = 0; i < stored_inputs(type); i += group_inputs) {
      pack_group(traits, block.values + i, lane, values);
      values += traits.group_bytes;
    }
    to += traits.block_bytes;
    stored += block_bytes;
  }
}

void Matrix::pack_floats(const std::uint8_t* stored, std::size_t output) {
  const std::size_t size = float_bytes(layout_);
  std::uint8_t* values = packed(output) + output % panel_outputs * size;
  for (std::size_t input = 0; input < inputs_; ++input) {
    std::memcpy(values + input * panel_outputs * size, stored + input * size, size);
  }
}

namespace {

float packed_float(Layout layout, const std::uint8_t* values, std::size_t index) {
  if (layout == Layout::f32) {
    float value;
    std::memcpy(&value, values + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, values + 2 * index, 2);
  return layout == Layout::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

// The scale of a group, then its minimum or the scale of its last 16 inputs.
struct GroupScales {
  float first;
  float second;
};

float packed_half(const std::uint8_t* halves, std::size_t index) {
  return packed_float(Layout::f16, halves, index);
}

// Of a group of a block, which begins at `scales`.
GroupScales group_scales(const LayoutTraits& traits, const std::uint8_t* scales, std::size_t group,
                         std::size_t lane) {
  const float first = packed_half(scales, lane);
  const float second = traits.has_minimum ? packed_half(scales, panel_outputs + lane) : first;
  if (!traits.has_blocks) return {first, second};
  const std::uint8_t* factors =
      scales + traits.half_bytes + group * traits.factor_bytes + lane;
  const auto factor = [&](std::size_t index) {
    const std::uint8_t byte = factors[panel_outputs * index];
    return static_cast<float>(traits.has_minimum ? byte : static_cast<std::int8_t>(byte));
  };
  return {first * factor(0), second * factor(1)};
}

// The products and sums are rounded one by one, as the gguf package does.
void dequantise_group(const LayoutTraits& traits, const std::uint8_t* values,
                      const GroupScales& scales, std::size_t lane, float* out) {
  for (std::size_t i = 0; i < group_inputs; ++i) {
    const bool is_high = traits.bits == 4 && i >= 16;
    const int byte = values[chunk_at((is_high ? i - 16 : i) / 4 * 4, lane) + i % 4];
    const int stored = traits.bits == 8 ? byte : is_high ? byte >> 4 : byte & 15;
    const auto value = static_cast<float>(stored - traits.offset);
    if (traits.has_minimum) {
      out[i] = scales.first * value + scales.second;
    } else {
      out[i] = (traits.parts == 2 && i >= 16 ? scales.second : scales.first) * value;
    }
  }
}

}  // namespace

void dequantise(const Matrix& w, std::size_t output, std::size_t first, std::size_t last,
                float* out) {
  if (output >= w.outputs() || last > w.inputs()) {
    throw std::out_of_range("The matrix has no output " + std::to_string(output) +
                            " of so many inputs.");
  }
  const std::size_t lane = output % panel_outputs;
  const std::uint8_t* weights = w.panel(output / panel_outputs);
  if (!is_quantised(w.layout())) {
    for (std::size_t input = first; input < last; ++input) {
      *out++ = packed_float(w.layout(), weights, input * panel_outputs + lane);
    }
    return;
  }
  const LayoutTraits traits = traits_of(w.layout());
  for (std::size_t group = first / group_inputs; group < last / group_inputs;
       ++group, out += group_inputs) {
    const std::uint8_t* block = weights + group / traits.block_groups * traits.block_bytes;
    const std::size_t index = group % traits.block_groups;
    dequantise_group(traits, block + traits.block_scale_bytes + index * traits.group_bytes,
                     group_scales(traits, block, index, lane), lane, out);
  }
}

}  // namespace forerun
