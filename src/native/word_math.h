// Attention over keys and values in 16 bits: what it computes for one row, head or page at a time.
//
// Products of 16-bit words are summed as integers, exactly; the limits below keep every such sum
// within 32 bits. So all instruction sets give the same bits, in whatever order they sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "row_math.h"

namespace forerun {

using Word = std::int16_t;

// Words of one head come in pairs, the operand of two products per 32-bit lane: components 2 i and
// 2 i + 1 of queries and keys, positions 2 i and 2 i + 1 of values and weights.
constexpr std::size_t page_positions = 32;
constexpr std::size_t page_parts = page_positions / lanes;

constexpr float query_limit = 8191;   // query_limit * key_limit * lanes < 2^31
constexpr float key_limit = 16383;
constexpr float value_limit = 16383;  // value_limit * (span_total + span_positions / 2) < 2^31
constexpr float weight_limit = 32767;
constexpr float span_total = 126000;
constexpr std::size_t span_positions = 128;

struct WordMath {
  // words = x / scale, rounded half to even, where scale is the largest magnitude / limit; `n` is a
  // multiple of `lanes`. Returns the scale: 0 for a row below 2^-100, NaN for one not finite.
  float (*quantise)(const float* x, std::size_t n, float limit, Word* words);

  // out[h][0..lanes * parts) = scale[h] * key_scales * products of query h with the keys of
  // `parts` parts of a page, keys[part][width / 2][lanes][2]. The products of `lanes` components
  // are summed as integers, those sums as floats, ascending.
  void (*scores)(const Word* const* queries, const float* scales, std::size_t heads,
                 const Word* keys, const float* key_scales, std::size_t width, std::size_t parts,
                 float* const* out);

  // words = x * scales * factor, rounded half to even: `n` weights of a span, none negative, and
  // zeros up to the next multiple of `lanes`; `x` becomes x * scales. The factor is span_total /
  // their sum, or weight_limit / their largest if that is less. Returns 1 / factor: 0 for weights
  // below 2^-100, NaN for any that are not finite.
  float (*quantise_weights)(float* x, const float* scales, std::size_t n, Word* words);

  // sums[h][0..width) += products of weights[h][2 * pairs] and values[pairs][width][2].
  void (*weigh)(const Word* const* weights, std::size_t heads, const Word* values,
                std::size_t pairs, std::size_t width, std::int32_t* const* sums);

  // total += scale * sums.
  void (*add_scaled)(const std::int32_t* sums, float scale, std::size_t n, float* total);
};

// The functions of the instruction set in use.
const WordMath& word_math();

extern const WordMath word_math_portable;
extern const WordMath word_math_avx2;
extern const WordMath word_math_avx512;

}  // namespace forerun
