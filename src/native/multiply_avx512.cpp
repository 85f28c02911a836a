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

inline void fetch(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T1);
}

inline __m512i broadcast(const std::int8_t* four) {
  std::int32_t bits;
  std::memcpy(&bits, four, sizeof bits);
  return _mm512_set1_epi32(bits);
}

inline __m512 widen(const std::uint16_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

template <int R>
inline void store(const PanelProduct& p, const __m512* totals) {
  const auto wanted = static_cast<__mmask16>((1u << p.outputs) - 1);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    _mm512_mask_storeu_ps(p.out + static_cast<std::size_t>(r) * p.stride, wanted, totals[r]);
  }
}

template <int R>
inline void add_chunk(__m512i chunk, const std::int8_t* x, __m512i* sums) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sums[r] = _mm512_dpbusd_epi32(sums[r], chunk, broadcast(x + 4 * r));
}

template <TensorType type, int R>
inline void add_group(const std::uint8_t* chunks, std::size_t ahead, const std::int8_t* x,
                      __m512i* sums) {
  constexpr int loads = type == TensorType::q8_0 ? 8 : 4;
  const __m512i low_half = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (int c = 0; c < loads; ++c) {
    fetch(chunks + 64 * c + ahead);
    const __m512i chunk = _mm512_loadu_si512(chunks + 64 * c);
    if (type == TensorType::q8_0) {
      add_chunk<R>(chunk, x + 4 * R * c, sums);
    } else {
      add_chunk<R>(_mm512_and_si512(chunk, low_half), x + 4 * R * c, sums);
      add_chunk<R>(_mm512_and_si512(_mm512_srli_epi16(chunk, 4), low_half),
                   x + 4 * R * (c + 4), sums);
    }
  }
}

template <TensorType type, int R>
void quantised(const PanelProduct& p) {
  constexpr std::size_t group_bytes = type == TensorType::q8_0 ? 512 : 256;
  constexpr std::size_t group_halves = type == TensorType::q4_1 ? 32 : 16;
  const std::size_t groups = p.inputs / group_inputs;
  const std::int32_t* starts = type == TensorType::q8_0 ? p.x.starts_8 : p.x.starts_4;
  __m512 totals[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) totals[r] = _mm512_setzero_ps();
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t at = group * R;
    __m512i sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      sums[r] = _mm512_set1_epi32(type == TensorType::q4_1 ? 0 : starts[at + r]);
    }
    add_group<type, R>(p.values + group * group_bytes, p.panel_bytes,
                       p.x.values + at * group_inputs, sums);
    const std::uint16_t* halves = p.scales + group * group_halves;
    fetch(halves + p.panel_bytes / sizeof *halves);
    const __m512 scales = widen(halves);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(p.x.scales[at + r]));
      totals[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sums[r]), totals[r]);
    }
    if (type == TensorType::q4_1) {
      const __m512 minima = widen(halves + panel_outputs);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        totals[r] =
            _mm512_fmadd_ps(minima, _mm512_set1_ps(p.x.scaled_sums[at + r]), totals[r]);
      }
    }
  }
  store<R>(p, totals);
}

template <TensorType type>
inline __m512 weights(const std::uint8_t* values, std::size_t input) {
  if (type == TensorType::f32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(values) + input * panel_outputs);
  }
  const std::uint16_t* halves =
      reinterpret_cast<const std::uint16_t*>(values) + input * panel_outputs;
  if (type == TensorType::f16) return widen(halves);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <TensorType type, int R>
void floats(const PanelProduct& p) {
  __m512 totals[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) totals[r] = _mm512_setzero_ps();
  for (std::size_t input = 0; input < p.inputs; ++input) {
    const __m512 column = weights<type>(p.values, input);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const float x = p.x.floats[static_cast<std::size_t>(r) * p.inputs + input];
      totals[r] = _mm512_fmadd_ps(column, _mm512_set1_ps(x), totals[r]);
    }
  }
  store<R>(p, totals);
}

#define FORERUN_BY_ROWS(kernel, type)                                                           \
  {                                                                                             \
    nullptr, kernel<type, 1>, kernel<type, 2>, kernel<type, 3>, kernel<type, 4>,                \
        kernel<type, 5>, kernel<type, 6>, kernel<type, 7>, kernel<type, 8>, kernel<type, 9>,    \
        kernel<type, 10>, kernel<type, 11>, kernel<type, 12>, kernel<type, 13>,                 \
        kernel<type, 14>, kernel<type, 15>, kernel<type, 16>                                    \
  }

}  // namespace

const Kernels avx512_kernels = {
    {FORERUN_BY_ROWS(floats, TensorType::f32), FORERUN_BY_ROWS(floats, TensorType::f16),
     FORERUN_BY_ROWS(floats, TensorType::bf16), FORERUN_BY_ROWS(quantised, TensorType::q4_0),
     FORERUN_BY_ROWS(quantised, TensorType::q4_1), FORERUN_BY_ROWS(quantised, TensorType::q8_0)},
    quantise_row};

}  // namespace forerun
