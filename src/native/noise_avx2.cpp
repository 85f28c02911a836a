// The noise four blocks at a time.

#include <immintrin.h>

#include "noise_draw.h"

namespace forerun {

namespace {

struct Avx2 {
  using Words = std::uint64_t __attribute__((vector_size(32)));
  using Reals = double __attribute__((vector_size(32)));
  static constexpr std::size_t width = 4;

  static Words counting_from(std::uint64_t first) { return Words{0, 1, 2, 3} + first; }
  static Words multiply(Words a, std::uint32_t b) {
    const __m256i words = noise::bits_as<__m256i>(a);
    return noise::bits_as<Words>(_mm256_mul_epu32(words, _mm256_set1_epi64x(b)));
  }
  static void store(const Words (&word)[4], std::uint32_t* token) {
    const __m256i front = noise::bits_as<__m256i>(Words(word[0] | (word[1] << 32)));
    const __m256i back = noise::bits_as<__m256i>(Words(word[2] | (word[3] << 32)));
    const __m256i even = _mm256_unpacklo_epi64(front, back);
    const __m256i odd = _mm256_unpackhi_epi64(front, back);
    auto* const out = reinterpret_cast<__m256i*>(token);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
  static Words load(const std::uint32_t* token) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(token));
    return noise::bits_as<Words>(_mm256_cvtepu32_epi64(words));
  }
};

}  // namespace

const NoiseKernels avx2_noise = {noise::Maker<Avx2>::make, noise::Drawer<Avx2>::draw,
                                noise::Maker<Avx2>::of_words};

}  // namespace forerun
