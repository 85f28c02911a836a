// The functions of word_math.h, for whatever instruction set the including file is compiled for.
//
// Included by word_math_*.cpp alone. All is in an unnamed namespace, so that no linker can take one
// set's function for another's.
#pragma once

#include <cstring>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "lane_math.h"
#include "small_floats.h"
#include "word_math.h"

namespace forerun {
namespace {

constexpr float least_magnitude = 7.888609052210118e-31f;  // 2^-100: 1 / scale must be finite

#if defined(__AVX512VNNI__)

// The words of a register, and of one pair, the same for all lanes.
using Words = __m512i;

inline __attribute__((always_inline)) Words load_words(const Word* from) {
  return _mm512_loadu_si512(from);
}

inline __attribute__((always_inline)) Words broadcast_pair(const Word* pair) {
  std::int32_t bits;
  std::memcpy(&bits, pair, sizeof bits);
  return _mm512_set1_epi32(bits);
}

inline __attribute__((always_inline)) void add_products(Sums& sums, Words a, Words b) {
  sums = reinterpret_cast<Sums>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sums), a, b));
}

#elif defined(__AVX2__)

struct Words {
  __m256i low, high;
};

inline __attribute__((always_inline)) Words load_words(const Word* from) {
  const auto* const halves = reinterpret_cast<const __m256i*>(from);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}

inline __attribute__((always_inline)) Words broadcast_pair(const Word* pair) {
  std::int32_t bits;
  std::memcpy(&bits, pair, sizeof bits);
  const __m256i all = _mm256_set1_epi32(bits);
  return {all, all};
}

inline __attribute__((always_inline)) void add_products(Sums& sums, Words a, Words b) {
  __m256i halves[2];
  std::memcpy(halves, &sums, sizeof sums);
  halves[0] = _mm256_add_epi32(halves[0], _mm256_madd_epi16(a.low, b.low));
  halves[1] = _mm256_add_epi32(halves[1], _mm256_madd_epi16(a.high, b.high));
  std::memcpy(&sums, halves, sizeof sums);
}

#else

struct Words {
  Word word[2 * lanes];
};

inline Words load_words(const Word* from) {
  Words words;
  std::memcpy(words.word, from, sizeof words.word);
  return words;
}

inline Words broadcast_pair(const Word* pair) {
  Words words;
  for (std::size_t i = 0; i < lanes; ++i) std::memcpy(&words.word[2 * i], pair, 2 * sizeof(Word));
  return words;
}

inline void add_products(Sums& sums, const Words& a, const Words& b) {
  for (std::size_t i = 0; i < lanes; ++i) {
    sums[i] += a.word[2 * i] * b.word[2 * i] + a.word[2 * i + 1] * b.word[2 * i + 1];
  }
}

#endif

// Rounds half to even, what is within 2^22 of zero.
inline __attribute__((always_inline)) void round_lanes(const Lanes& x, Word* words) {
  const Lanes shifted = x + 12582912.0f;  // 1.5 * 2^23 leaves a whole number in the lowest bits
  Sums whole;
  std::memcpy(&whole, &shifted, sizeof whole);
  whole -= 0x4B400000;
#ifdef __AVX512VNNI__
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words),
                      _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(whole)));
#else
  for (std::size_t i = 0; i < lanes; ++i) words[i] = static_cast<Word>(whole[i]);
#endif
}

inline std::int32_t largest_of(const Sums& x) {
  return joined(x, [](Sums& a, const Sums& b) { a = a > b ? a : b; });
}

inline float sum_of(const Lanes& x) {
  return joined(x, [](Lanes& a, const Lanes& b) { a += b; });
}

// As integers, the bits of magnitudes are ordered as the floats are, NaNs last.
inline __attribute__((always_inline)) void keep_largest(const Lanes& x, Sums& most) {
  Sums bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= 0x7FFFFFFF;
  most = bits > most ? bits : most;
}

inline void scale_all(const float* x, std::size_t n, float factor, Word* words) {
  Lanes value;
  for (std::size_t i = 0; i < n; i += lanes) {
    load(value, x + i);
    round_lanes(value * factor, words + i);
  }
}

constexpr std::int32_t bits_of_infinity = 0x7F800000;

float quantise(const float* x, std::size_t n, float limit, Word* words) {
  Lanes value;
  Sums most{};
  for (std::size_t i = 0; i < n; i += lanes) {
    load(value, x + i);
    keep_largest(value, most);
  }
  const std::int32_t bits = largest_of(most);
  const float largest = float_of_bits(static_cast<std::uint32_t>(bits));
  const bool is_finite = bits < bits_of_infinity;
  if (!is_finite || largest < least_magnitude) {
    std::memset(words, 0, n * sizeof(Word));
    return is_finite ? 0.0f : float_of_bits(0x7FC00000u);
  }
  const float scale = largest / limit;
  scale_all(x, n, 1.0f / scale, words);
  return scale;
}

float quantise_weights(float* x, const float* scales, std::size_t n, Word* words) {
  const std::size_t end = padded(n);
  Lanes value, scale, total{};
  Sums most{};
  for (std::size_t i = 0; i < end; i += lanes) {
    load(value, x + i);
    load(scale, scales + i);
    value *= scale;
    store(x + i, value);
    total += value;
    keep_largest(value, most);
  }
  const std::int32_t bits = largest_of(most);
  const float largest = float_of_bits(static_cast<std::uint32_t>(bits)), sum = sum_of(total);
  const bool is_finite = bits < bits_of_infinity && sum < float_of_bits(0x7F800000u);
  if (!is_finite || largest < least_magnitude) {
    std::memset(words, 0, end * sizeof(Word));
    return is_finite ? 0.0f : float_of_bits(0x7FC00000u);
  }
  const float by_total = span_total / sum, by_largest = weight_limit / largest;
  const float factor = by_total < by_largest ? by_total : by_largest;
  scale_all(x, end, factor, words);
  return 1.0f / factor;
}

template <std::size_t heads, std::size_t parts>
void scores_of(const Word* const* queries, const float* scales, const Word* keys,
               const float* key_scales, std::size_t width, float* const* out) {
  Lanes totals[heads][parts];
  const Word* query[heads];
  for (std::size_t h = 0; h < heads; ++h) {
    query[h] = queries[h];
    for (std::size_t k = 0; k < parts; ++k) totals[h][k] = Lanes{};
  }
  for (std::size_t first = 0; first < width; first += lanes) {
    Sums sums[heads][parts];
    for (auto& of_head : sums) {
      for (Sums& sum : of_head) sum = Sums{};
    }
#pragma GCC unroll 8
    for (std::size_t i = first; i < first + lanes; i += 2) {
      Words key[parts];
      for (std::size_t k = 0; k < parts; ++k) key[k] = load_words(keys + (k * width + i) * lanes);
      for (std::size_t h = 0; h < heads; ++h) {
        const Words pair = broadcast_pair(query[h] + i);
        for (std::size_t k = 0; k < parts; ++k) add_products(sums[h][k], key[k], pair);
      }
    }
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t k = 0; k < parts; ++k) {
        totals[h][k] += __builtin_convertvector(sums[h][k], Lanes);
      }
    }
  }
  for (std::size_t k = 0; k < parts; ++k) {
    Lanes scale;
    load(scale, key_scales + k * lanes);
    for (std::size_t h = 0; h < heads; ++h) {
      store(out[h] + k * lanes, totals[h][k] * (scale * scales[h]));
    }
  }
}

template <std::size_t heads>
void scores_in(const Word* const* queries, const float* scales, const Word* keys,
               const float* key_scales, std::size_t width, std::size_t parts, float* const* out) {
  if (parts == page_parts) {
    scores_of<heads, page_parts>(queries, scales, keys, key_scales, width, out);
  } else {
    scores_of<heads, 1>(queries, scales, keys, key_scales, width, out);
  }
}

void scores(const Word* const* queries, const float* scales, std::size_t heads, const Word* keys,
            const float* key_scales, std::size_t width, std::size_t parts, float* const* out) {
  static_assert(page_parts == 2 && most_heads == 4);
  switch (heads) {
    case 1: return scores_in<1>(queries, scales, keys, key_scales, width, parts, out);
    case 2: return scores_in<2>(queries, scales, keys, key_scales, width, parts, out);
    case 3: return scores_in<3>(queries, scales, keys, key_scales, width, parts, out);
    default: return scores_in<4>(queries, scales, keys, key_scales, width, parts, out);
  }
}

// Components [first, first + parts * lanes).
template <std::size_t heads, std::size_t parts>
void weigh_part(const Word* const* weights, const Word* values, std::size_t pairs,
                std::size_t width, std::size_t first, std::int32_t* const* sums) {
  Sums total[heads][parts];
  const Word* weight[heads];
  for (std::size_t h = 0; h < heads; ++h) {
    weight[h] = weights[h];
    for (std::size_t k = 0; k < parts; ++k) load(total[h][k], sums[h] + first + k * lanes);
  }
  for (std::size_t i = 0; i < pairs; ++i) {
    Words value[parts];
    for (std::size_t k = 0; k < parts; ++k) {
      value[k] = load_words(values + 2 * (i * width + first + k * lanes));
    }
    for (std::size_t h = 0; h < heads; ++h) {
      const Words pair = broadcast_pair(weight[h] + 2 * i);
      for (std::size_t k = 0; k < parts; ++k) add_products(total[h][k], value[k], pair);
    }
  }
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t k = 0; k < parts; ++k) store(sums[h] + first + k * lanes, total[h][k]);
  }
}

template <std::size_t heads>
void weigh_all(const Word* const* weights, const Word* values, std::size_t pairs,
               std::size_t width, std::int32_t* const* sums) {
  std::size_t first = 0;
  for (; first + 4 * lanes <= width; first += 4 * lanes) {
    weigh_part<heads, 4>(weights, values, pairs, width, first, sums);
  }
  for (; first < width; first += lanes) {
    weigh_part<heads, 1>(weights, values, pairs, width, first, sums);
  }
}

void weigh(const Word* const* weights, std::size_t heads, const Word* values, std::size_t pairs,
           std::size_t width, std::int32_t* const* sums) {
  switch (heads) {
    case 1: return weigh_all<1>(weights, values, pairs, width, sums);
    case 2: return weigh_all<2>(weights, values, pairs, width, sums);
    case 3: return weigh_all<3>(weights, values, pairs, width, sums);
    default: return weigh_all<4>(weights, values, pairs, width, sums);
  }
}

void add_scaled(const std::int32_t* sums, float scale, std::size_t n, float* total) {
  Sums whole;
  Lanes value;
  for (std::size_t i = 0; i < n; i += lanes) {
    load(whole, sums + i);
    load(value, total + i);
    store(total + i, value + __builtin_convertvector(whole, Lanes) * scale);
  }
}

constexpr WordMath functions{quantise, scores, quantise_weights, weigh, add_scaled};

}  // namespace
}  // namespace forerun
