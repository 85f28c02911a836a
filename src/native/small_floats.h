// Floats of 16 bits, widened exactly.
#pragma once

#include <cstdint>
#include <cstring>

namespace forerun {

// Static, not inline: every instruction set keeps its own copy, compiled with its own flags.
static inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  if (exponent == 31) return float_of_bits(sign | 0x7F800000u | mantissa << 13);
  return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline float bfloat_to_float(std::uint16_t bfloat) {
  return float_of_bits(static_cast<std::uint32_t>(bfloat) << 16);
}

}  // namespace forerun
