// Four doubles or 64-bit words at a time: included by *_avx2.cpp only.
#pragma once

#include <immintrin.h>

#include "noise_lanes.h"

namespace forerun {
namespace noise {
namespace {

struct Avx2 {
  using Words = std::uint64_t __attribute__((vector_size(32)));
  using Reals = double __attribute__((vector_size(32)));
  static constexpr std::size_t width = 4;

  static Words counting_from(std::uint64_t first) { return Words{0, 1, 2, 3} + first; }
  static Words multiply(Words a, std::uint32_t b) {
    const __m256i words = bits_as<__m256i>(a);
    return bits_as<Words>(_mm256_mul_epu32(words, _mm256_set1_epi64x(b)));
  }
  static void store(const Words (&word)[4], std::uint32_t* token) {
    const __m256i front = bits_as<__m256i>(Words(word[0] | (word[1] << 32)));
    const __m256i back = bits_as<__m256i>(Words(word[2] | (word[3] << 32)));
    const __m256i even = _mm256_unpacklo_epi64(front, back);
    const __m256i odd = _mm256_unpackhi_epi64(front, back);
    auto* const out = reinterpret_cast<__m256i*>(token);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
  static Words load(const std::uint32_t* token) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(token));
    return bits_as<Words>(_mm256_cvtepu32_epi64(words));
  }
  static Reals reals(const float* x) {
    return bits_as<Reals>(_mm256_cvtps_pd(_mm_loadu_ps(x)));
  }
  static Reals reals(const double* x) { return bits_as<Reals>(_mm256_loadu_pd(x)); }
  static Reals larger(Reals a, Reals b) {
    return bits_as<Reals>(_mm256_max_pd(bits_as<__m256d>(a), bits_as<__m256d>(b)));
  }
  static Reals pick(const double (&table)[16], Words index) {
    return bits_as<Reals>(_mm256_i64gather_pd(table, bits_as<__m256i>(index), 8));
  }
};

}  // namespace
}  // namespace noise
}  // namespace forerun
