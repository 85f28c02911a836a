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
  using Floats = float __attribute__((vector_size(32)));
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
  static Floats whole(const float* x) { return bits_as<Floats>(_mm256_loadu_ps(x)); }
  static Reals whole(const double* x) { return reals(x); }
  static Floats larger(Floats a, Floats b) {
    return bits_as<Floats>(_mm256_max_ps(bits_as<__m256>(a), bits_as<__m256>(b)));
  }
  static Reals larger(Reals a, Reals b) {
    return bits_as<Reals>(_mm256_max_pd(bits_as<__m256d>(a), bits_as<__m256d>(b)));
  }
  static Words smaller(Words a, Words b) {
    return bits_as<Words>(_mm256_min_epu32(bits_as<__m256i>(a), bits_as<__m256i>(b)));
  }
  static std::uint32_t smallest(Words x) {
    const __m256i all = bits_as<__m256i>(x);
    const __m128i two =
        _mm_min_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    const __m128i one = _mm_min_epu32(two, _mm_unpackhi_epi64(two, two));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(one));
  }
  static float largest(Floats x) {
    const __m256 all = bits_as<__m256>(x);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  static double largest(Reals x) {
    const __m256d all = bits_as<__m256d>(x);
    const __m128d two = _mm_max_pd(_mm256_castpd256_pd128(all), _mm256_extractf128_pd(all, 1));
    return _mm_cvtsd_f64(_mm_max_sd(two, _mm_unpackhi_pd(two, two)));
  }
  static bool reaches(Reals x, double limit) {
    const __m256d found = _mm256_cmp_pd(bits_as<__m256d>(x), _mm256_set1_pd(limit), _CMP_GE_OQ);
    return _mm256_movemask_pd(found) != 0;
  }
  static Reals pick(const double (&table)[16], Words index) {
    const Words place = index & 15;
    return bits_as<Reals>(_mm256_i64gather_pd(table, bits_as<__m256i>(place), 8));
  }
};

}  // namespace
}  // namespace noise
}  // namespace forerun
