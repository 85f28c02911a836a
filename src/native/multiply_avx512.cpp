// The kernels with AVX-512 VNNI: a chunk of 64 bytes and 4 inputs of a row make one vpdpbusd.
//
// A row broadcasts its 4 inputs; a chunk is loaded once for all rows of the tile, each of which
// has its sums and its totals in registers. The next panel is fetched meanwhile, into the second
// level: fetched into the first, it takes the few places there that loads wait in, and one row
// takes half as long again.

#include <immintrin.h>

#include "multiply_kernels.h"
#include "quantise_row.h"

namespace forerun {

namespace {

inline __m512i broadcast(const std::int8_t* four) {
  std::int32_t bits;
  std::memcpy(&bits, four, sizeof bits);
  return _mm512_set1_epi32(bits);
}

inline __m512 widen(const std::uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

// From a group's numbers to the next one's.
template <int R>
constexpr std::size_t stride = group_numbers(R);

template <int R>
inline void store(const PanelProduct& p, const __m512* totals) {
  const auto wanted = static_cast<__mmask16>((1u << p.outputs) - 1);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512 result = _mm512_mul_ps(totals[r], _mm512_set1_ps(p.factors[r]));
    _mm512_mask_storeu_ps(p.out + static_cast<std::size_t>(r) * p.stride, wanted, result);
  }
}

template <int R>
inline void add_chunk(__m512i chunk, const std::int8_t* x, __m512i* sums) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sums[r] = _mm512_dpbusd_epi32(sums[r], chunk, broadcast(x + 4 * r));
}

// Adds integer products of a group, or of its part.
template <Layout layout, int R>
inline void sum_part(const std::uint8_t* chunks, const std::int8_t* x, __m512i* sums) {
  constexpr LayoutTraits traits = traits_of(layout);
  constexpr int loads = static_cast<int>(traits.bits / traits.parts);
  const __m512i low_half = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (int c = 0; c < loads; ++c) {
    const __m512i chunk = _mm512_loadu_si512(chunks + 64 * c);
    if (traits.bits == 8) {
      add_chunk<R>(chunk, x + 4 * R * c, sums);
    } else {
      add_chunk<R>(_mm512_and_si512(chunk, low_half), x + 4 * R * c, sums);
      add_chunk<R>(_mm512_and_si512(_mm512_srli_epi16(chunk, 4), low_half),
                   x + 4 * R * (c + 4), sums);
    }
  }
}

// What sums of products with weights that are stored plus an offset start from, for each row.
template <Layout layout, std::size_t part, int R>
inline void start(const ActivationTile& x, std::size_t group, __m512i* sums) {
  constexpr LayoutTraits traits = traits_of(layout);
  const std::int32_t* starts = traits.parts == 2   ? x.starts_16 + part * R
                               : traits.offset == 8 ? x.starts_4
                                                    : x.starts_8;
  starts += group * stride<R>;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sums[r] = _mm512_set1_epi32(traits.offset == 0 ? 0 : starts[r]);
}

// Scales that begin at `halves`, or factors of a group times these.
template <Layout layout>
inline __m512 scales_at(const std::uint8_t* halves, const std::uint8_t* factors) {
  constexpr LayoutTraits traits = traits_of(layout);
  const __m512 scales = widen(halves);
  if constexpr (!traits.has_blocks) return scales;
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors));
  const __m512i whole = traits.has_minimum ? _mm512_cvtepu8_epi32(bytes)
                                           : _mm512_cvtepi8_epi32(bytes);
  return _mm512_mul_ps(scales, _mm512_cvtepi32_ps(whole));
}

// Where a group is.
struct Group {
  std::size_t index;
  const std::uint8_t* halves;
  const std::uint8_t* factors;
  const std::uint8_t* chunks;
};

template <Layout layout>
inline Group group_of(const PanelProduct& p, std::size_t index) {
  constexpr LayoutTraits traits = traits_of(layout);
  const std::uint8_t* block = p.weights + index / traits.block_groups * traits.block_bytes;
  const std::size_t place = index % traits.block_groups;
  return {index, block, block + traits.half_bytes + place * traits.factor_bytes,
          block + traits.block_scale_bytes + place * traits.group_bytes};
}

// Fetches as much of what comes next as a group has of this panel.
template <Layout layout>
inline void fetch_next(const PanelProduct& p, std::size_t group) {
  constexpr std::size_t bytes = traits_of(layout).block_bytes / traits_of(layout).block_groups;
#pragma GCC unroll 9
  for (std::size_t byte = 0; byte < bytes; byte += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p.next + group * bytes + byte), _MM_HINT_T1);
  }
}

// Adds the products of a group, or of its part.
template <Layout layout, std::size_t part, int R>
inline void add_part(const PanelProduct& p, const Group& group, __m512* totals) {
  constexpr LayoutTraits traits = traits_of(layout);
  const std::uint8_t* chunks = group.chunks + part * traits.group_bytes / traits.parts;
  const std::int8_t* x =
      p.x.values + R * (group.index * group_inputs + part * group_inputs / traits.parts);
  __m512i sums[R];
  start<layout, part, R>(p.x, group.index, sums);
  sum_part<layout, R>(chunks, x, sums);
  const __m512 scales = scales_at<layout>(group.halves, group.factors + panel_outputs * part);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(p.x.scales[group.index * stride<R> + r]));
    totals[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sums[r]), totals[r]);
  }
}

template <Layout layout, int R>
void quantised(const PanelProduct& p) {
  constexpr LayoutTraits traits = traits_of(layout);
  __m512 totals[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) totals[r] = _mm512_setzero_ps();
  for (std::size_t i = 0; i < p.inputs / group_inputs; ++i) {
    const Group group = group_of<layout>(p, i);
    fetch_next<layout>(p, i);
    add_part<layout, 0, R>(p, group, totals);
    if constexpr (traits.parts == 2) add_part<layout, 1, R>(p, group, totals);
    if constexpr (traits.has_minimum) {
      const __m512 minima =
          scales_at<layout>(group.halves + 2 * panel_outputs, group.factors + panel_outputs);
      const float* sums = p.x.scaled_sums + i * stride<R>;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        totals[r] = _mm512_fmadd_ps(minima, _mm512_set1_ps(sums[r]), totals[r]);
      }
    }
  }
  store<R>(p, totals);
}

template <Layout layout>
inline __m512 weights(const std::uint8_t* values, std::size_t input) {
  if (layout == Layout::f32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(values) + input * panel_outputs);
  }
  const std::uint8_t* halves = values + 2 * input * panel_outputs;
  if (layout == Layout::f16) return widen(halves);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <Layout layout, int R>
void floats(const PanelProduct& p) {
  __m512 totals[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) totals[r] = _mm512_setzero_ps();
  for (std::size_t input = 0; input < p.inputs; ++input) {
    const __m512 column = weights<layout>(p.weights, input);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const float x = p.x.floats[static_cast<std::size_t>(r) * p.inputs + input];
      totals[r] = _mm512_fmadd_ps(column, _mm512_set1_ps(x), totals[r]);
    }
  }
  store<R>(p, totals);
}

#define FORERUN_BY_ROWS(kernel, layout)                                                         \
  {                                                                                             \
    nullptr, kernel<layout, 1>, kernel<layout, 2>, kernel<layout, 3>, kernel<layout, 4>,        \
        kernel<layout, 5>, kernel<layout, 6>, kernel<layout, 7>, kernel<layout, 8>,             \
        kernel<layout, 9>, kernel<layout, 10>, kernel<layout, 11>, kernel<layout, 12>,          \
        kernel<layout, 13>, kernel<layout, 14>, kernel<layout, 15>, kernel<layout, 16>          \
  }

}  // namespace

const Kernels avx512_kernels = {
    {FORERUN_BY_ROWS(floats, Layout::f32), FORERUN_BY_ROWS(floats, Layout::f16),
     FORERUN_BY_ROWS(floats, Layout::bf16), FORERUN_BY_ROWS(quantised, Layout::offset_4),
     FORERUN_BY_ROWS(quantised, Layout::minimum_4), FORERUN_BY_ROWS(quantised, Layout::offset_8),
     FORERUN_BY_ROWS(quantised, Layout::minimum_8),
     FORERUN_BY_ROWS(quantised, Layout::block_minimum_4),
     FORERUN_BY_ROWS(quantised, Layout::block_minimum_8),
     FORERUN_BY_ROWS(quantised, Layout::block_offset_8)},
    quantise_row};

}  // namespace forerun
