// The kernels with AVX2, FMA and F16C: half a chunk, 8 outputs, at a time.
//
// vpmaddubsw adds two products in 16 bits and saturates, so the operands are kept where it cannot:
// 8 times 2 products of 4-bit weights are at most 8 * 2 * 15 * 127 = 30480 together; 2 products
// of signed weights, as magnitude times signed input, at most 2 * 128 * 127 = 32512.

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

// Into the second level: the first has few places for loads to wait in.
inline void fetch(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T1);
}

inline __m256i broadcast(const std::int8_t* four) {
  std::int32_t bits;
  std::memcpy(&bits, four, sizeof bits);
  return _mm256_set1_epi32(bits);
}

inline __m256i load(const std::uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

inline __m256 widen(const std::uint16_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

// Keeps compilers from making all products first and adding them later: there are not the
// registers for that, and a quarter of the time would go into memory.
inline void added_now(__m256i& sum) { asm("" : "+x"(sum)); }

template <int R>
inline void store(const Block& b, const __m256* totals) {
  for (int r = 0; r < R; ++r) {
    float* out = b.p.out + (b.first_row + static_cast<std::size_t>(r)) * b.p.stride;
    float lanes[half_outputs];
    _mm256_storeu_ps(lanes, totals[r]);
    for (std::size_t i = 0; i < half_outputs && b.first_output + i < b.p.outputs; ++i) {
      out[b.first_output + i] = lanes[i];
    }
  }
}

// Sums of 16 bits, two an output: no room for the offset, which is added when they are widened.
template <int R>
inline void add_q4(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
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

template <int R>
inline void add_q8(const std::uint8_t* chunks, const std::int8_t* x, std::size_t rows,
                   __m256i* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (std::size_t c = 0; c < 8; ++c, x += 4 * rows) {
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

template <TensorType type, int R>
void quantised(const Block& b) {
  constexpr std::size_t group_bytes = type == TensorType::q8_0 ? 512 : 256;
  constexpr std::size_t group_halves = type == TensorType::q4_1 ? 32 : 16;
  const std::size_t rows = b.p.x.rows;
  __m256 totals[R];
  for (int r = 0; r < R; ++r) totals[r] = _mm256_setzero_ps();
  for (std::size_t group = 0; group < b.p.inputs / group_inputs; ++group) {
    const std::size_t at = group * rows + b.first_row;
    const std::uint8_t* chunks = b.p.values + group * group_bytes + 4 * b.first_output;
    const std::int8_t* x = b.p.x.values + group * group_inputs * rows + 4 * b.first_row;
    __m256i sums[R];
    if (type == TensorType::q8_0) {
      add_q8<R>(chunks, x, rows, sums);
    } else {
      add_q4<R>(chunks, x, rows, sums);
    }
    const std::uint16_t* halves = b.p.scales + group * group_halves + b.first_output;
    if (b.first_row == 0 && b.first_output == 0) {  // the next panel, once
      for (std::size_t byte = 0; byte < group_bytes; byte += 64) {
        fetch(chunks + b.p.panel_bytes + byte);
      }
      fetch(halves + b.p.panel_bytes / sizeof *halves);
    }
    const __m256 scales = widen(halves);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      if (type == TensorType::q4_0) {
        sums[r] = _mm256_add_epi32(sums[r], _mm256_set1_epi32(b.p.x.starts_4[at + r]));
      }
      const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(b.p.x.scales[at + r]));
      totals[r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[r]), totals[r]);
    }
    if (type == TensorType::q4_1) {
      const __m256 minima = widen(halves + panel_outputs);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        totals[r] =
            _mm256_fmadd_ps(minima, _mm256_set1_ps(b.p.x.scaled_sums[at + r]), totals[r]);
      }
    }
  }
  store<R>(b, totals);
}

template <TensorType type>
inline __m256 weights(const std::uint8_t* values, std::size_t index) {
  if (type == TensorType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(values) + index);
  }
  const std::uint16_t* halves = reinterpret_cast<const std::uint16_t*>(values) + index;
  if (type == TensorType::f16) return widen(halves);
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <TensorType type, int R>
void floats(const Block& b) {
  __m256 totals[R];
  for (int r = 0; r < R; ++r) totals[r] = _mm256_setzero_ps();
  for (std::size_t input = 0; input < b.p.inputs; ++input) {
    const __m256 column = weights<type>(b.p.values, input * panel_outputs + b.first_output);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const std::size_t row = b.first_row + static_cast<std::size_t>(r);
      const float x = b.p.x.floats[row * b.p.inputs + input];
      totals[r] = _mm256_fmadd_ps(column, _mm256_set1_ps(x), totals[r]);
    }
  }
  store<R>(b, totals);
}

template <TensorType type, int R>
void block(const Block& b) {
  if constexpr (is_quantised(type)) {
    quantised<type, R>(b);
  } else {
    floats<type, R>(b);
  }
}

template <TensorType type>
void product(const PanelProduct& p) {
  for (std::size_t row = 0; row < p.x.rows; row += block_rows) {
    for (std::size_t output = 0; output < p.outputs; output += half_outputs) {
      const Block b{p, row, output};
      switch (p.x.rows - row) {
        case 1: block<type, 1>(b); break;
        case 2: block<type, 2>(b); break;
        case 3: block<type, 3>(b); break;
        default: block<type, 4>(b); break;
      }
    }
  }
}

#define FORERUN_ANY_ROWS(type)                                                                  \
  {                                                                                             \
    nullptr, product<type>, product<type>, product<type>, product<type>, product<type>,         \
        product<type>, product<type>, product<type>, product<type>, product<type>,              \
        product<type>, product<type>, product<type>, product<type>, product<type>,              \
        product<type>                                                                           \
  }

}  // namespace

const Kernels avx2_kernels = {
    {FORERUN_ANY_ROWS(TensorType::f32), FORERUN_ANY_ROWS(TensorType::f16),
     FORERUN_ANY_ROWS(TensorType::bf16), FORERUN_ANY_ROWS(TensorType::q4_0),
     FORERUN_ANY_ROWS(TensorType::q4_1), FORERUN_ANY_ROWS(TensorType::q8_0)},
    quantise_row};

}  // namespace forerun
