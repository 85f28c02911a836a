// A row of activations in 8 bits: one text, compiled by every instruction set with its own flags.
//
// Written without branches inside a group, so that compilers turn the loops into vector code.
#pragma once

#include "multiply_kernels.h"
#include "small_floats.h"

namespace forerun {

// Smaller groups are zeros: 1 / scale must not overflow, nor the scale lose bits as a subnormal.
constexpr std::uint32_t smallest_magnitude_bits = (127u - 100u) << 23;  // 2^-100
constexpr std::uint32_t infinity_bits = 0x7F800000u;

static inline void quantise_group(const float* x, std::size_t group, const QuantisedRow& to) {
  std::uint32_t bits[group_inputs];
  std::memcpy(bits, x, sizeof bits);
  // As integers, magnitudes are ordered as the floats are, then infinity, then the NaNs.
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < group_inputs; ++i) {
    const std::uint32_t magnitude = bits[i] & 0x7FFFFFFFu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const bool counts = largest >= smallest_magnitude_bits && largest < infinity_bits;
  float scale = counts ? float_of_bits(largest) / 127.0f : 0.0f;
  const float inverse = counts ? 1.0f / scale : 0.0f;

  // Adding 1.5 * 2^23 rounds to an integer, half to even, and leaves it in the lowest bits.
  std::int32_t rounded[group_inputs];
  std::int32_t sum = 0;
  if (counts) {
    float shifted[group_inputs];
    for (std::size_t i = 0; i < group_inputs; ++i) shifted[i] = x[i] * inverse + 12582912.0f;
    std::memcpy(rounded, shifted, sizeof rounded);
    for (std::size_t i = 0; i < group_inputs; ++i) {
      rounded[i] -= 0x4B400000;
      sum += rounded[i];
    }
  } else {
    std::memset(rounded, 0, sizeof rounded);
    if (largest >= infinity_bits) scale = float_of_bits(0x7FC00000u);
  }

  std::int8_t values[group_inputs];
  for (std::size_t i = 0; i < group_inputs; ++i) values[i] = static_cast<std::int8_t>(rounded[i]);
  std::int8_t* interleaved = to.values + group * group_inputs * to.rows;
  for (std::size_t i = 0; i < group_inputs; i += 4) {
    std::memcpy(interleaved + i * to.rows, values + i, 4);
  }
  to.scales[group * to.rows] = scale;
  to.scaled_sums[group * to.rows] = scale * static_cast<float>(sum);
  to.starts_4[group * to.rows] = -8 * sum;
  to.starts_8[group * to.rows] = -128 * sum;
}

static void quantise_row(const float* x, std::size_t groups, const QuantisedRow& to) {
  for (std::size_t group = 0; group < groups; ++group) {
    quantise_group(x + group * group_inputs, group, to);
  }
}

}  // namespace forerun
