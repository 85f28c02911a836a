// What a pass computes besides matrix products, for one row or one head at a time.
//
// Each function exists once an instruction set, compiled from the one text in row_math_body.h: only
// additions, multiplications, divisions and square roots, each rounded by itself, in an order that
// is written down. So all sets give the same bits, and a row's never depend on its company.
#pragma once

#include <cstddef>

namespace forerun {

// Sums along a row go to this many partial sums, value i to sum i % lanes; then to one by halves.
// Heads are padded with zeros to a multiple of it, and a part of a page is so many positions.
constexpr std::size_t lanes = 16;

constexpr std::size_t padded(std::size_t count) { return (count + lanes - 1) / lanes * lanes; }

// Rows are cut into parts of so many values, which threads may share out.
constexpr std::size_t part = 2 * lanes;

// Heads that attend over the same keys and values in one call; each load serves all of them.
constexpr std::size_t most_heads = 4;

struct RowMath {
  // 1 / sqrt(mean of x * x + epsilon) (Zhang and Sennrich 2019).
  float (*rms_factor)(const float* x, float epsilon, std::size_t n);

  // out = x * weight; squares[i * stride] = sum of x * x over the i-th part of x, the last of what
  // is left.
  void (*weigh_parts)(const float* x, const float* weight, std::size_t n, float* out,
                      float* squares, std::size_t stride);

  // out = x * factor * weight; in place is fine.
  void (*scale)(const float* x, float factor, const float* weight, std::size_t n, float* out);

  // out = gate / (1 + exp(-gate)) * up.
  void (*silu_gate)(const float* gate, const float* up, std::size_t n, float* out);

  // x += y.
  void (*add)(const float* y, std::size_t n, float* x);

  // out[h][0..lanes): products of query h with the keys of one part, keys[width][lanes].
  void (*scores)(const float* const* queries, std::size_t heads, const float* keys,
                 std::size_t width, float* const* out);

  // values = exp(values - their largest) (core/softmax.py: quick_exponential); zeros up to the next
  // multiple of `lanes`, for which there must be room. Returns their sum.
  float (*exponentials)(float* values, std::size_t n);

  // The sum of exp(x - highest) over n numbers up to `highest`: four by four lanes in single
  // precision, these in double, the lanes by halves (core/softmax.py: log_normaliser).
  double (*sum_of_exponentials)(const float* x, std::size_t n, float highest);

  // out[h][width] += sum over i < count, ascending, of weights[h][i] * values[i], values[i][width].
  void (*weigh)(const float* const* weights, std::size_t heads, const float* values,
                std::size_t count, std::size_t width, float* const* out);
};

// The functions of the instruction set in use.
const RowMath& row_math();

extern const RowMath row_math_portable;
extern const RowMath row_math_avx2;
extern const RowMath row_math_avx512;

}  // namespace forerun
