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
void add_4(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
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

// The same of some chunks. Inlined, compilers find twice as wide vectors in it.
template <std::size_t count>
[[gnu::always_inline]] inline void add_8(const std::uint8_t* chunks, const std::int8_t* x,
                                         std::size_t rows, std::int32_t* sums) {
  std::int32_t totals[64] = {};
  for (std::size_t chunk = 0; chunk < count; ++chunk) {
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

struct GroupScales {
  float of[2][panel_outputs];  // the scale, then the minimum or the last 16 inputs' scale
};

template <Layout layout>
[[gnu::always_inline]] inline GroupScales group_scales(const std::uint8_t* weights,
                                                       std::size_t group) {
  constexpr LayoutTraits traits = traits_of(layout);
  constexpr std::size_t block_groups = traits.block_groups;
  GroupScales result;
  const std::uint8_t* block = weights + group / block_groups * traits.block_bytes;
  const std::uint8_t* factors =
      block + traits.half_bytes + group % block_groups * traits.factor_bytes;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(block);
  for (std::size_t i = 0; i < panel_outputs; ++i) {
    result.of[0][i] = half_to_float(halves[i]);
    if (traits.has_minimum) result.of[1][i] = half_to_float(halves[panel_outputs + i]);
    if (traits.parts == 2) result.of[1][i] = result.of[0][i];
  }
  for (std::size_t i = 0; traits.has_blocks && i < 2 * panel_outputs; ++i) {
    const int factor = traits.has_minimum ? factors[i] : static_cast<std::int8_t>(factors[i]);
    result.of[i / panel_outputs][i % panel_outputs] *= static_cast<float>(factor);
  }
  return result;
}

// Sums of the products of a group, or of its part, with one row.
template <Layout layout>
[[gnu::always_inline]] inline void sum_products(const PanelProduct& p, std::size_t row,
                                                std::size_t group, std::size_t part,
                                                std::int32_t* sums) {
  constexpr LayoutTraits traits = traits_of(layout);
  const std::size_t at = group * p.x.stride + row;
  const std::int8_t* x = p.x.values + group * group_inputs * p.x.rows + 4 * row;
  const std::uint8_t* block = p.weights + group / traits.block_groups * traits.block_bytes;
  const std::uint8_t* chunks =
      block + traits.block_scale_bytes + group % traits.block_groups * traits.group_bytes;
  std::int32_t start = 0;
  if (traits.offset == 8) start = p.x.starts_4[at];
  if (traits.offset == 128) start = p.x.starts_8[at];
  if (traits.parts == 2) start = p.x.starts_16[at + part * p.x.rows];
  for (std::size_t i = 0; i < panel_outputs; ++i) sums[i] = start;
  if constexpr (traits.bits == 4) {
    add_4(chunks, x, p.x.rows, sums);
  } else {
    constexpr std::size_t count = 8 / traits.parts;
    add_8<count>(chunks + 64 * count * part, x + 4 * p.x.rows * count * part, p.x.rows, sums);
  }
}

void store(const PanelProduct& p, std::size_t row, const float* totals) {
  float* const out = p.out + row * p.stride;
  for (std::size_t i = 0; i < p.outputs; ++i) out[i] = totals[i] * p.factors[row];
}

template <Layout layout>
void quantised(const PanelProduct& p) {
  constexpr LayoutTraits traits = traits_of(layout);
  for (std::size_t row = 0; row < p.x.rows; ++row) {
    float totals[panel_outputs] = {};
    for (std::size_t group = 0; group < p.inputs / group_inputs; ++group) {
      const std::size_t at = group * p.x.stride + row;
      const GroupScales scales = group_scales<layout>(p.weights, group);
      for (std::size_t part = 0; part < traits.parts; ++part) {
        std::int32_t sums[panel_outputs];
        sum_products<layout>(p, row, group, part, sums);
        for (std::size_t i = 0; i < panel_outputs; ++i) {
          const float scale = scales.of[part][i] * p.x.scales[at];
          totals[i] = std::fma(scale, static_cast<float>(sums[i]), totals[i]);
        }
      }
      for (std::size_t i = 0; traits.has_minimum && i < panel_outputs; ++i) {
        totals[i] = std::fma(scales.of[1][i], p.x.scaled_sums[at], totals[i]);
      }
    }
    store(p, row, totals);
  }
}

template <Layout layout>
float weight(const std::uint8_t* values, std::size_t index) {
  if (layout == Layout::f32) return reinterpret_cast<const float*>(values)[index];
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(values)[index];
  return layout == Layout::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

template <Layout layout>
void floats(const PanelProduct& p) {
  for (std::size_t row = 0; row < p.x.rows; ++row) {
    const float* x = p.x.floats + row * p.inputs;
    float totals[panel_outputs] = {};
    for (std::size_t input = 0; input < p.inputs; ++input) {
      for (std::size_t i = 0; i < panel_outputs; ++i) {
        totals[i] = std::fma(weight<layout>(p.weights, input * panel_outputs + i), x[input],
                             totals[i]);
      }
    }
    store(p, row, totals);
  }
}

using Product = void (*)(const PanelProduct&);

// One function serves any number of rows.
constexpr Kernels any_rows() {
  constexpr Product by_layout[layouts] = {
      floats<Layout::f32>,
      floats<Layout::f16>,
      floats<Layout::bf16>,
      quantised<Layout::offset_4>,
      quantised<Layout::minimum_4>,
      quantised<Layout::offset_8>,
      quantised<Layout::minimum_8>,
      quantised<Layout::block_minimum_4>,
      quantised<Layout::block_minimum_8>,
      quantised<Layout::block_offset_8>,
  };
  Kernels kernels{{}, quantise_row};
  for (std::size_t layout = 0; layout < layouts; ++layout) {
    for (std::size_t rows = 1; rows <= tile_rows; ++rows) {
      kernels.product[layout][rows] = by_layout[layout];
    }
  }
  return kernels;
}

}  // namespace

const Kernels portable_kernels = any_rows();

}  // namespace forerun
