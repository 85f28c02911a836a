// The functions of row_math.h, for whatever instruction set the including file is compiled for.
//
// Included by row_math_*.cpp alone. All is in an unnamed namespace, so that no linker can take one
// set's function for another's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "lane_math.h"
#include "row_math.h"

namespace forerun {
namespace {

typedef std::uint32_t Bits __attribute__((vector_size(64)));

// The last values of a row, with zeros behind them.
inline void load_some(Lanes& to, const float* from, std::size_t count) {
  to = Lanes{};
  std::memcpy(&to, from, count * sizeof(float));
}

inline float sum_of(const Lanes& x) {
  return joined(x, [](Lanes& a, const Lanes& b) { a += b; });
}

// x becomes exp(x), within 2 units in the last place for x from -87 to 88, to which it is clamped:
// 2^n * exp(r), r = x - n ln 2, by the Taylor polynomial of degree 7 on |r| <= ln 2 / 2.
inline __attribute__((always_inline)) void exponential(Lanes& x) {
  const float least = -87.0f, most = 88.0f;
  const float round = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  x = x < least ? Lanes{} + least : x;
  x = x > most ? Lanes{} + most : x;
  const Lanes shifted = x * 1.44269504f + round;
  const Lanes n = shifted - round;
  const Lanes r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Lanes p = r * (1.0f / 5040) + (1.0f / 720);
  p = p * r + (1.0f / 120);
  p = p * r + (1.0f / 24);
  p = p * r + (1.0f / 6);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  Bits whole;
  std::memcpy(&whole, &shifted, sizeof whole);
  // The low 9 bits of `shifted` are n; a NaN's are anything, and p is NaN then.
  const Bits exponent = (whole + 127u) << 23;
  Lanes scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  x = p * scale;
}

inline __attribute__((always_inline)) float sum_of_squares(const float* x, std::size_t n) {
  Lanes sum{}, value;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    load(value, x + i);
    sum += value * value;
  }
  load_some(value, x + i, n - i);
  sum += value * value;
  return sum_of(sum);
}

float rms_factor(const float* x, float epsilon, std::size_t n) {
  const float root = std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + epsilon);
  return 1.0f / root;
}

void weigh_parts(const float* x, const float* weight, std::size_t n, float* out, float* squares,
                 std::size_t stride) {
  std::size_t first = 0;
  for (; first + part <= n; first += part, squares += stride) {
    *squares = sum_of_squares(x + first, part);
  }
  if (first < n) *squares = sum_of_squares(x + first, n - first);
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * weight[i];
}

void scale(const float* x, float factor, const float* weight, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

inline __attribute__((always_inline)) void silu_lanes(Lanes& gate, const Lanes& up) {
  Lanes power = -gate;
  exponential(power);
  gate = gate / (power + 1.0f) * up;
}

void silu_gate(const float* gate, const float* up, std::size_t n, float* out) {
  Lanes g, u;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    load(g, gate + i);
    load(u, up + i);
    silu_lanes(g, u);
    store(out + i, g);
  }
  load_some(g, gate + i, n - i);
  load_some(u, up + i, n - i);
  silu_lanes(g, u);
  std::memcpy(out + i, &g, (n - i) * sizeof(float));
}

void add(const float* y, std::size_t n, float* x) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

// Two sums a score, over even and odd components: half as long a chain of additions.
template <std::size_t heads>
void scores_of(const float* const* queries, const float* keys, std::size_t width,
               float* const* out) {
  Lanes even[heads]{}, odd[heads]{}, key;
  const float* query[heads];
  for (std::size_t h = 0; h < heads; ++h) query[h] = queries[h];
  for (std::size_t i = 0; i < width; i += 2) {
    load(key, keys + i * lanes);
    for (std::size_t h = 0; h < heads; ++h) even[h] += key * query[h][i];
    load(key, keys + (i + 1) * lanes);
    for (std::size_t h = 0; h < heads; ++h) odd[h] += key * query[h][i + 1];
  }
  for (std::size_t h = 0; h < heads; ++h) store(out[h], even[h] + odd[h]);
}

void scores(const float* const* queries, std::size_t heads, const float* keys, std::size_t width,
            float* const* out) {
  switch (heads) {
    case 1: return scores_of<1>(queries, keys, width, out);
    case 2: return scores_of<2>(queries, keys, width, out);
    case 3: return scores_of<3>(queries, keys, width, out);
    default: return scores_of<most_heads>(queries, keys, width, out);
  }
}

// Each x <= 0 becomes exp(x), or exp(-87): core/softmax.py: quick_exponential. Step by step for all
// of them, as one's steps wait for each other.
template <std::size_t count>
inline __attribute__((always_inline)) void quick_exponentials(Lanes (&x)[count]) {
  const float least = -87.0f;
  const float magic = 12583039.0f;  // 1.5 * 2^23 + 127: n + 127 is 2^n's exponent
  constexpr float series[] = {0x1.3cbf60p-7f, 0x1.c6afeep-5f, 0x1.ebfa4cp-3f, 0x1.62e430p-1f, 1.0f};
  Lanes shifted[count], p[count];
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = (x[i] < least ? Lanes{} + least : x[i]) * 1.44269504f;
    shifted[i] = x[i] + magic;
  }
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = x[i] - (shifted[i] - magic);
    p[i] = Lanes{} + 0x1.5ec866p-10f;
  }
  for (const float coefficient : series) {
    for (std::size_t i = 0; i < count; ++i) p[i] = p[i] * x[i] + coefficient;
  }
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, &shifted[i], sizeof bits);
    bits <<= 23;
    std::memcpy(&shifted[i], &bits, sizeof bits);
    x[i] = p[i] * shifted[i];
  }
}

float exponentials(float* values, std::size_t n) {
  const std::size_t end = padded(n), whole = n / lanes * lanes;
  for (std::size_t i = n; i < end; ++i) values[i] = values[0];
  Lanes most, sum{};
  load(most, values);
  for (std::size_t i = lanes; i < end; i += lanes) {
    Lanes x;
    load(x, values + i);
    most = x > most ? x : most;
  }
  const float largest = joined(most, [](Lanes& a, const Lanes& b) { a = a > b ? a : b; });
  for (std::size_t i = 0; i < end; i += lanes) {
    Lanes x[1];
    load(x[0], values + i);
    x[0] = x[0] - largest;
    quick_exponentials(x);
    store(values + i, x[0]);
    if (i < whole) sum += x[0];
  }
  if (n < end) {
    for (std::size_t i = n; i < end; ++i) values[i] = 0.0f;
    Lanes x;
    load(x, values + whole);
    sum += x;
  }
  return sum_of(sum);
}

typedef float HalfLanes __attribute__((vector_size(32)));
typedef double Doubles __attribute__((vector_size(64)));

inline __attribute__((always_inline)) void add_four(const float* x, float highest, Doubles& lower,
                                                    Doubles& upper) {
  Lanes value[4];
  for (std::size_t i = 0; i < 4; ++i) {
    load(value[i], x + i * lanes);
    value[i] = value[i] - highest;
  }
  quick_exponentials(value);
  const Lanes sum = (value[0] + value[1]) + (value[2] + value[3]);
  HalfLanes half[2];
  std::memcpy(&half, &sum, sizeof sum);
  lower += __builtin_convertvector(half[0], Doubles);
  upper += __builtin_convertvector(half[1], Doubles);
}

double sum_of_exponentials(const float* x, std::size_t n, float highest) {
  constexpr std::size_t four = 4 * lanes;
  Doubles lower{}, upper{};
  std::size_t i = 0;
  for (; i + four <= n; i += four) add_four(x + i, highest, lower, upper);
  if (i < n) {
    float rest[four];
    std::fill(rest, rest + four, -__builtin_huge_valf());
    std::memcpy(rest, x + i, (n - i) * sizeof(float));
    add_four(rest, highest, lower, upper);
  }
  lower += upper;
  for (std::size_t half = 4; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) lower[k] += lower[k + half];
  }
  return lower[0];
}

// Components [first, first + 2 * lanes) or, at the end of a head, [first, first + lanes).
template <std::size_t heads, std::size_t parts>
void weigh_part(const float* const* weights, const float* values, std::size_t count,
                std::size_t width, std::size_t first, float* const* out) {
  Lanes total[heads][parts], value[parts];
  const float* weight[heads];
  for (std::size_t h = 0; h < heads; ++h) {
    weight[h] = weights[h];
    for (std::size_t k = 0; k < parts; ++k) load(total[h][k], out[h] + first + k * lanes);
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < parts; ++k) load(value[k], values + i * width + first + k * lanes);
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t k = 0; k < parts; ++k) total[h][k] += value[k] * weight[h][i];
    }
  }
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t k = 0; k < parts; ++k) store(out[h] + first + k * lanes, total[h][k]);
  }
}

template <std::size_t heads>
void weigh_all(const float* const* weights, const float* values, std::size_t count,
               std::size_t width, float* const* out) {
  std::size_t first = 0;
  for (; first + 2 * lanes <= width; first += 2 * lanes) {
    weigh_part<heads, 2>(weights, values, count, width, first, out);
  }
  if (first < width) weigh_part<heads, 1>(weights, values, count, width, first, out);
}

void weigh(const float* const* weights, std::size_t heads, const float* values, std::size_t count,
           std::size_t width, float* const* out) {
  switch (heads) {
    case 1: return weigh_all<1>(weights, values, count, width, out);
    case 2: return weigh_all<2>(weights, values, count, width, out);
    case 3: return weigh_all<3>(weights, values, count, width, out);
    default: return weigh_all<most_heads>(weights, values, count, width, out);
  }
}

constexpr RowMath functions{rms_factor,   weigh_parts,         scale, silu_gate, add, scores,
                            exponentials, sum_of_exponentials, weigh};

}  // namespace
}  // namespace forerun
