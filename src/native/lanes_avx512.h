// Eight doubles or 64-bit words at a time: included by *_avx512.cpp only.
#pragma once

#include <immintrin.h>

#include "noise_lanes.h"

namespace forerun {
namespace noise {
namespace {

struct Avx512 {
  using Words = std::uint64_t __attribute__((vector_size(64)));
  using Reals = double __attribute__((vector_size(64)));
  using Floats = float __attribute__((vector_size(64)));
  static constexpr std::size_t width = 8;

  static Words counting_from(std::uint64_t first) {
    return Words{0, 1, 2, 3, 4, 5, 6, 7} + first;
  }
  static Words multiply(Words a, std::uint32_t b) {
    const __m512i words = bits_as<__m512i>(a);
    return bits_as<Words>(_mm512_mul_epu32(words, _mm512_set1_epi64(b)));
  }
  static void store(const Words (&word)[4], std::uint32_t* token) {
    const __m512i front = bits_as<__m512i>(Words(word[0] | (word[1] << 32)));
    const __m512i back = bits_as<__m512i>(Words(word[2] | (word[3] << 32)));
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(token, _mm512_permutex2var_epi64(front, first, back));
    _mm512_storeu_si512(token + 16, _mm512_permutex2var_epi64(front, second, back));
  }
  static Words load(const std::uint32_t* token) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(token));
    return bits_as<Words>(_mm512_cvtepu32_epi64(words));
  }
  static Reals reals(const float* x) {
    return bits_as<Reals>(_mm512_cvtps_pd(_mm256_loadu_ps(x)));
  }
  static Reals reals(const double* x) { return bits_as<Reals>(_mm512_loadu_pd(x)); }
  static Floats whole(const float* x) { return bits_as<Floats>(_mm512_loadu_ps(x)); }
  static Reals whole(const double* x) { return reals(x); }
  static Floats larger(Floats a, Floats b) {
    return bits_as<Floats>(_mm512_max_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
  }
  static Reals larger(Reals a, Reals b) {
    return bits_as<Reals>(_mm512_max_pd(bits_as<__m512d>(a), bits_as<__m512d>(b)));
  }
  static Words smaller(Words a, Words b) {
    return bits_as<Words>(_mm512_min_epu32(bits_as<__m512i>(a), bits_as<__m512i>(b)));
  }
  static std::uint32_t smallest(Words x) {
    return static_cast<std::uint32_t>(_mm512_reduce_min_epu64(bits_as<__m512i>(x)));
  }
  static float largest(Floats x) { return _mm512_reduce_max_ps(bits_as<__m512>(x)); }
  static double largest(Reals x) { return _mm512_reduce_max_pd(bits_as<__m512d>(x)); }
  static bool reaches(Reals x, double limit) {
    return _mm512_cmp_pd_mask(bits_as<__m512d>(x), _mm512_set1_pd(limit), _CMP_GE_OQ) != 0;
  }
  static Reals pick(const double (&table)[16], Words index) {
    const __m512d front = _mm512_loadu_pd(table), back = _mm512_loadu_pd(table + 8);
    return bits_as<Reals>(_mm512_permutex2var_pd(front, bits_as<__m512i>(index), back));
  }
};

}  // namespace
}  // namespace noise
}  // namespace forerun
