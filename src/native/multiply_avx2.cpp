// The kernels with AVX2, FMA and F16C: half a chunk, 8 outputs, at a time.
//
// vpmaddubsw adds two products in 16 bits and saturates, so the operands are kept where it cannot:
// 8 times 2 products of 4-bit weights are at most 8 * 2 * 15 * 127 = 30480 together, and 4 times 2
// of 5-bit weights 4 * 2 * 31 * 127 = 31496; 2 products of signed weights, as magnitude times
// signed input, at most 2 * 128 * 127 = 32512.

#include <immintrin.h>

#include "multiply_kernels.h"
#include "quantise_row.h"

namespace forerun {

namespace {

constexpr std::size_t block_rows = 4;    // of which sums and totals fit 16 registers
constexpr std::size_t half_outputs = 8;  // outputs in a register

// Some rows of a tile and half the outputs of a panel.
struct Block {
  const PanelProduct& p;
  std::size_t first_row;
  std::size_t first_output;
};

inline __m256i broadcast(const std::int8_t* four) {
  std::int32_t bits;
  std::memcpy(&bits, four, sizeof bits);
  return _mm256_set1_epi32(bits);
}

inline __m256i load(const std::uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

inline __m256 widen(const std::uint8_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

// Keeps compilers from making all products first and adding them later: there are not the
// registers for that, and a quarter of the time would go into memory.
inline void added_now(__m256i& sum) { asm("" : "+x"(sum)); }

template <int R>
inline void store(const Block& b, const __m256* totals) {
  for (int r = 0; r < R; ++r) {
    const std::size_t row = b.first_row + static_cast<std::size_t>(r);
    float* out = b.p.out + row * b.p.stride;
    float lanes[half_outputs];
    _mm256_storeu_ps(lanes, _mm256_mul_ps(totals[r], _mm256_set1_ps(b.p.factors[row])));
    for (std::size_t i = 0; i < half_outputs && b.first_output + i < b.p.outputs; ++i) {
      out[b.first_output + i] = lanes[i];
    }
  }
}

// Sums of 16 bits, two an output: no room for the offset, which is added when they are widened.
template <int R>
inline void add_4(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
                  __m256i* sums) {
  const __m256i low_half = _mm256_set1_epi8(15);
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (std::size_t c = 0; c < 4; ++c, x += 4 * rows) {
    const __m256i chunk = load(chunks + 64 * c);
    const __m256i low = _mm256_and_si256(chunk, low_half);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(chunk, 4), low_half);
    const std::int8_t* x_high = x + 16 * rows;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i first = _mm256_maddubs_epi16(low, broadcast(x + 4 * r));
      const __m256i second = _mm256_maddubs_epi16(high, broadcast(x_high + 4 * r));
      sums[r] = _mm256_add_epi16(sums[r], _mm256_add_epi16(first, second));
      added_now(sums[r]);
    }
  }
  for (int r = 0; r < R; ++r) sums[r] = _mm256_madd_epi16(sums[r], _mm256_set1_epi16(1));
}

// 5 bits in 8: 4 chunks are summed in 16 bits.
template <int R>
inline void add_5(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
                  __m256i* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 2
  for (std::size_t half = 0; half < 2; ++half) {
    __m256i pairs[R];
    for (int r = 0; r < R; ++r) pairs[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (std::size_t c = 4 * half; c < 4 * half + 4; ++c, x += 4 * rows) {
      const __m256i chunk = load(chunks + 64 * c);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256i product = _mm256_maddubs_epi16(chunk, broadcast(x + 4 * r));
        pairs[r] = _mm256_add_epi16(pairs[r], product);
        added_now(pairs[r]);
      }
    }
    for (int r = 0; r < R; ++r) {
      sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs[r], ones));
    }
  }
}

template <int R, std::size_t count>
inline void add_8(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
                  __m256i* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (std::size_t c = 0; c < count; ++c, x += 4 * rows) {
    const __m256i chunk =
        _mm256_xor_si256(load(chunks + 64 * c), _mm256_set1_epi8(static_cast<char>(0x80)));
    const __m256i magnitudes = _mm256_abs_epi8(chunk);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i signed_x = _mm256_sign_epi8(broadcast(x + 4 * r), chunk);
      const __m256i pairs = _mm256_maddubs_epi16(magnitudes, signed_x);
      sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs, ones));
      added_now(sums[r]);
    }
  }
}

// Where the block's half of a group is.
struct Group {
  std::size_t index;
  const std::uint8_t* halves;
  const std::uint8_t* factors;
  const std::uint8_t* chunks;
};

template <Layout layout>
inline Group group_of(const Block& b, std::size_t index) {
  constexpr LayoutTraits traits = traits_of(layout);
  const std::uint8_t* begin = b.p.weights + index / traits.block_groups * traits.block_bytes;
  const std::size_t place = index % traits.block_groups;
  return {index, begin + 2 * b.first_output,
          begin + traits.half_bytes + place * traits.factor_bytes + b.first_output,
          begin + traits.block_scale_bytes + place * traits.group_bytes + 4 * b.first_output};
}

// Sums of a group's products, or of its part's, without those of the offset of 4 bits.
template <Layout layout, std::size_t part, int R>
inline void sum_part(const Block& b, const Group& group, __m256i* sums) {
  constexpr LayoutTraits traits = traits_of(layout);
  const std::size_t rows = b.p.x.rows;
  const std::uint8_t* chunks = group.chunks;
  const std::int8_t* x = b.p.x.values + group.index * group_inputs * rows + 4 * b.first_row;
  if constexpr (traits.bits == 4) {
    add_4<R>(chunks, x, rows, sums);
  } else if constexpr (traits.has_minimum) {
    add_5<R>(chunks, x, rows, sums);
  } else {
    constexpr std::size_t count = 8 / traits.parts;
    add_8<R, count>(chunks + 64 * count * part, x + 4 * rows * count * part, rows, sums);
  }
}

// Scales that begin at `halves`, or factors of a group times these; of 8 outputs.
template <Layout layout>
inline __m256 scales_at(const std::uint8_t* halves, const std::uint8_t* factors) {
  constexpr LayoutTraits traits = traits_of(layout);
  const __m256 scales = widen(halves);
  if constexpr (!traits.has_blocks) return scales;
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(factors));
  const __m256i whole = traits.has_minimum ? _mm256_cvtepu8_epi32(bytes)
                                           : _mm256_cvtepi8_epi32(bytes);
  return _mm256_mul_ps(scales, _mm256_cvtepi32_ps(whole));
}

// Adds the products of a group, or of its part.
template <Layout layout, std::size_t part, int R>
inline void add_part(const Block& b, const Group& group, __m256* totals) {
  constexpr LayoutTraits traits = traits_of(layout);
  const std::size_t at = group.index * b.p.x.stride + b.first_row;
  __m256i sums[R];
  sum_part<layout, part, R>(b, group, sums);
  const __m256 scales = scales_at<layout>(group.halves, group.factors + panel_outputs * part);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    if (traits.offset == 8) {
      sums[r] = _mm256_add_epi32(sums[r], _mm256_set1_epi32(b.p.x.starts_4[at + r]));
    }
    const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(b.p.x.scales[at + r]));
    totals[r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[r]), totals[r]);
  }
}

// Fetches as much of what comes next as a group has of this panel, once, into the second level:
// the first has few places for loads to wait in.
template <Layout layout>
inline void fetch_next(const Block& b, std::size_t group) {
  constexpr std::size_t bytes = traits_of(layout).block_bytes / traits_of(layout).block_groups;
  if (b.first_row != 0 || b.first_output != 0) return;
  for (std::size_t byte = 0; byte < bytes; byte += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(b.p.next + group * bytes + byte), _MM_HINT_T1);
  }
  // Compilers take a function that does no more for one without effect, and drop its calls.
  asm volatile("");
}

template <Layout layout, int R>
void quantised(const Block& b) {
  constexpr LayoutTraits traits = traits_of(layout);
  __m256 totals[R];
  for (int r = 0; r < R; ++r) totals[r] = _mm256_setzero_ps();
  for (std::size_t i = 0; i < b.p.inputs / group_inputs; ++i) {
    const Group group = group_of<layout>(b, i);
    fetch_next<layout>(b, i);
    add_part<layout, 0, R>(b, group, totals);
    if constexpr (traits.parts == 2) add_part<layout, 1, R>(b, group, totals);
    if constexpr (traits.has_minimum) {
      const __m256 minima =
          scales_at<layout>(group.halves + 2 * panel_outputs, group.factors + panel_outputs);
      const float* sums = b.p.x.scaled_sums + i * b.p.x.stride + b.first_row;
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        totals[r] = _mm256_fmadd_ps(minima, _mm256_set1_ps(sums[r]), totals[r]);
      }
    }
  }
  store<R>(b, totals);
}

template <Layout layout>
inline __m256 weights(const std::uint8_t* values, std::size_t index) {
  if (layout == Layout::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(values) + index);
  }
  const std::uint8_t* halves = values + 2 * index;
  if (layout == Layout::f16) return widen(halves);
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <Layout layout, int R>
void floats(const Block& b) {
  __m256 totals[R];
  for (int r = 0; r < R; ++r) totals[r] = _mm256_setzero_ps();
  for (std::size_t input = 0; input < b.p.inputs; ++input) {
    const __m256 column = weights<layout>(b.p.weights, input * panel_outputs + b.first_output);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const std::size_t row = b.first_row + static_cast<std::size_t>(r);
      const float x = b.p.x.floats[row * b.p.inputs + input];
      totals[r] = _mm256_fmadd_ps(column, _mm256_set1_ps(x), totals[r]);
    }
  }
  store<R>(b, totals);
}

template <Layout layout, int R>
void block(const Block& b) {
  if constexpr (is_quantised(layout)) {
    quantised<layout, R>(b);
  } else {
    floats<layout, R>(b);
  }
}

template <Layout layout>
void product(const PanelProduct& p) {
  for (std::size_t row = 0; row < p.x.rows; row += block_rows) {
    for (std::size_t output = 0; output < p.outputs; output += half_outputs) {
      const Block b{p, row, output};
      switch (p.x.rows - row) {
        case 1: block<layout, 1>(b); break;
        case 2: block<layout, 2>(b); break;
        case 3: block<layout, 3>(b); break;
        default: block<layout, 4>(b); break;
      }
    }
  }
}

// One function serves any number of rows.
constexpr Kernels any_rows() {
  constexpr void (*by_layout[layouts])(const PanelProduct&) = {
      product<Layout::f32>,
      product<Layout::f16>,
      product<Layout::bf16>,
      product<Layout::offset_4>,
      product<Layout::minimum_4>,
      product<Layout::offset_8>,
      product<Layout::minimum_8>,
      product<Layout::block_minimum_4>,
      product<Layout::block_minimum_8>,
      product<Layout::block_offset_8>,
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

const Kernels avx2_kernels = any_rows();

}  // namespace forerun
