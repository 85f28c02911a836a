// A row of activations in 8 bits: one text, compiled by every instruction set with its own flags.
#pragma once

#include <cstring>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "multiply_kernels.h"
#include "small_floats.h"

namespace forerun {

// Smaller groups are zeros: 1 / scale must not overflow, nor the scale lose bits as a subnormal.
constexpr std::uint32_t smallest_magnitude_bits = (127u - 100u) << 23;  // 2^-100
constexpr std::uint32_t infinity_bits = 0x7F800000u;

// The bits of the largest magnitude of a group. As integers, magnitudes are ordered as the floats
// are, then comes infinity, then the NaNs.
static inline std::uint32_t largest_magnitude(const float* x);

struct GroupSums {
  std::int32_t all;
  std::int32_t first;  // of the first 16
};

// Writes 32 values of x * inverse, rounded half to even and known to fit; returns their sums.
static inline GroupSums round_group(const float* x, float inverse, std::int8_t* values);

#ifdef __AVX2__

static inline __m128i halves_max(__m256i v) {
  return _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

static inline std::uint32_t largest_magnitude(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i largest = _mm256_setzero_si256();
  for (std::size_t i = 0; i < group_inputs; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, magnitude));
  }
  __m128i four = halves_max(largest);
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
}

static inline GroupSums round_group(const float* x, float inverse, std::int8_t* values) {
  const __m256 factor = _mm256_set1_ps(inverse);
  __m256i whole[4];
  for (std::size_t i = 0; i < 4; ++i) {
    whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
  }
  // Packing works within each half of a register; the permutation puts fours in their order.
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                           _mm256_packs_epi32(whole[2], whole[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(values),
                      _mm256_permutevar8x32_epi32(bytes, order));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  // Here the first 16 inputs stand in the first two lanes of each half.
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
  const __m128i all = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return {_mm_cvtsi128_si32(all), _mm_cvtsi128_si32(sum)};
}

#else

static inline std::uint32_t largest_magnitude(const float* x) {
  std::uint32_t bits[group_inputs];
  std::memcpy(bits, x, sizeof bits);
  std::uint32_t largest = 0;
  for (const std::uint32_t signed_bits : bits) {
    const std::uint32_t magnitude = signed_bits & 0x7FFFFFFFu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

static inline GroupSums round_group(const float* x, float inverse, std::int8_t* values) {
  GroupSums sums{0, 0};
  for (std::size_t i = 0; i < group_inputs; ++i) {
    // Adding 1.5 * 2^23 rounds to an integer, half to even, and leaves it in the lowest bits.
    const float shifted = x[i] * inverse + 12582912.0f;
    std::int32_t value;
    std::memcpy(&value, &shifted, sizeof value);
    value -= 0x4B400000;
    values[i] = static_cast<std::int8_t>(value);
    sums.all += value;
    if (i < group_inputs / 2) sums.first += value;
  }
  return sums;
}

#endif

static inline void quantise_group(const float* x, std::size_t group, const QuantisedRow& to) {
  const std::uint32_t largest = largest_magnitude(x);
  std::int8_t values[group_inputs] = {};
  float scale = 0;
  GroupSums sums{0, 0};
  if (largest >= infinity_bits) {
    scale = float_of_bits(0x7FC00000u);
  } else if (largest >= smallest_magnitude_bits) {
    scale = float_of_bits(largest) / 127.0f;
    sums = round_group(x, 1.0f / scale, values);
  }
  std::int8_t* interleaved = to.values + group * group_inputs * to.rows;
  for (std::size_t i = 0; i < group_inputs; i += 4) {
    std::memcpy(interleaved + i * to.rows, values + i, 4);
  }
  float* const scales = to.scales + group * to.stride;
  scales[0] = scale;
  scales[to.rows] = scale * static_cast<float>(sums.all);
  std::int32_t* const starts = to.starts + group * to.stride;
  starts[0] = -8 * sums.all;
  starts[to.rows] = -128 * sums.all;
  starts[2 * to.rows] = -128 * sums.first;
  starts[3 * to.rows] = -128 * (sums.all - sums.first);
}

static void quantise_row(const float* x, std::size_t groups, const QuantisedRow& to) {
  for (std::size_t group = 0; group < groups; ++group) {
    quantise_group(x + group * group_inputs, group, to);
  }
}

}  // namespace forerun
