// The kernels in plain C++: what the others compute, to the bit.

#include <cmath>

#include "multiply_kernels.h"
#include "quantise_row.h"

namespace forerun {

namespace {

// Four inputs twice, so that they lie beside 8 weights, 2 outputs: compilers find vectors in that.
struct Inputs {
  explicit Inputs(const std::int8_t* four) {
    for (std::size_t i = 0; i < 8; ++i) twice[i] = four[i % 4];
  }
  std::int16_t twice[8];
};

// Sums of a group's products for one row, added to sums[16].
void add_q4(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
            std::int32_t* sums) {
  std::int16_t totals[64] = {};  // of 8 products each: at most 8 * 15 * 127
  for (std::size_t chunk = 0; chunk < 4; ++chunk) {
    const Inputs low(x + chunk * 4 * rows);
    const Inputs high(x + (chunk * 4 + 16) * rows);
    for (std::size_t at = 0; at < 64; at += 8) {
      for (std::size_t i = 0; i < 8; ++i) {
        const int pair = chunks[64 * chunk + at + i];
        const int both = (pair & 15) * low.twice[i] + (pair >> 4) * high.twice[i];
        totals[at + i] = static_cast<std::int16_t>(totals[at + i] + both);
      }
    }
  }
  for (std::size_t i = 0; i < panel_outputs; ++i) {
    sums[i] += totals[4 * i] + totals[4 * i + 1] + totals[4 * i + 2] + totals[4 * i + 3];
  }
}

void add_q8(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
            std::int32_t* sums) {
  std::int32_t totals[64] = {};
  for (std::size_t chunk = 0; chunk < 8; ++chunk) {
    const Inputs inputs(x + chunk * 4 * rows);
    for (std::size_t at = 0; at < 64; at += 8) {
      for (std::size_t i = 0; i < 8; ++i) {
        // 255 * 127 fits.
        const int product = chunks[64 * chunk + at + i] * inputs.twice[i];
        totals[at + i] += static_cast<std::int16_t>(product);
      }
    }
  }
  for (std::size_t i = 0; i < panel_outputs; ++i) {
    sums[i] += totals[4 * i] + totals[4 * i + 1] + totals[4 * i + 2] + totals[4 * i + 3];
  }
}

template <TensorType type>
void quantised(const PanelProduct& p) {
  constexpr std::size_t group_bytes = type == TensorType::q8_0 ? 512 : 256;
  constexpr std::size_t group_halves = type == TensorType::q4_1 ? 32 : 16;
  for (std::size_t row = 0; row < p.x.rows; ++row) {
    float totals[panel_outputs] = {};
    for (std::size_t group = 0; group < p.inputs / group_inputs; ++group) {
      const std::size_t at = group * p.x.rows + row;
      const std::int8_t* x = p.x.values + group * group_inputs * p.x.rows + 4 * row;
      std::int32_t start = 0;
      if (type == TensorType::q4_0) start = p.x.starts_4[at];
      if (type == TensorType::q8_0) start = p.x.starts_8[at];
      std::int32_t sums[panel_outputs];
      for (std::int32_t& sum : sums) sum = start;
      constexpr auto add = type == TensorType::q8_0 ? add_q8 : add_q4;
      add(p.values + group * group_bytes, x, p.x.rows, sums);
      const std::uint16_t* scales = p.scales + group * group_halves;
      for (std::size_t i = 0; i < panel_outputs; ++i) {
        const float scale = half_to_float(scales[i]) * p.x.scales[at];
        totals[i] = std::fma(scale, static_cast<float>(sums[i]), totals[i]);
        if (type == TensorType::q4_1) {
          const float minimum = half_to_float(scales[panel_outputs + i]);
          totals[i] = std::fma(minimum, p.x.scaled_sums[at], totals[i]);
        }
      }
    }
    for (std::size_t i = 0; i < p.outputs; ++i) p.out[row * p.stride + i] = totals[i];
  }
}

template <TensorType type>
float weight(const std::uint8_t* values, std::size_t index) {
  if (type == TensorType::f32) return reinterpret_cast<const float*>(values)[index];
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(values)[index];
  return type == TensorType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

template <TensorType type>
void floats(const PanelProduct& p) {
  for (std::size_t row = 0; row < p.x.rows; ++row) {
    const float* x = p.x.floats + row * p.inputs;
    float totals[panel_outputs] = {};
    for (std::size_t input = 0; input < p.inputs; ++input) {
      for (std::size_t i = 0; i < panel_outputs; ++i) {
        totals[i] = std::fma(weight<type>(p.values, input * panel_outputs + i), x[input],
                             totals[i]);
      }
    }
    for (std::size_t i = 0; i < p.outputs; ++i) p.out[row * p.stride + i] = totals[i];
  }
}

using Product = void (*)(const PanelProduct&);

// One function serves any number of rows.
constexpr Kernels any_rows() {
  constexpr Product by_type[] = {floats<TensorType::f32>,     floats<TensorType::f16>,
                                 floats<TensorType::bf16>,    quantised<TensorType::q4_0>,
                                 quantised<TensorType::q4_1>, quantised<TensorType::q8_0>};
  Kernels kernels{{}, quantise_row};
  for (std::size_t type = 0; type < 6; ++type) {
    for (std::size_t rows = 1; rows <= tile_rows; ++rows) {
      kernels.product[type][rows] = by_type[type];
    }
  }
  return kernels;
}

}  // namespace

const Kernels portable_kernels = any_rows();

}  // namespace forerun
