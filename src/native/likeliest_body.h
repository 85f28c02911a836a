// The likeliest tokens, in loops that each instruction set makes its own of: included by
// likeliest_*.cpp alone.
#pragma once

#include <cstring>
#include <limits>

#include "likeliest.h"

namespace forerun {
namespace {

constexpr std::size_t width = 16;
constexpr std::size_t part = 4 * width;

// exp(x) for x <= 0: the exponent's and the mantissa's bits as one number, linear in x
// (Schraudolph, 1999, "A fast, compact approximation of the exponential function").
constexpr float bits_per_unit = 12102203.0f;
constexpr float bits_of_one = 1064986823.0f;

inline float quick_exponential(float x) {
  const float bits = x * bits_per_unit + bits_of_one;
  const std::int32_t whole = bits > 0.0f ? static_cast<std::int32_t>(bits) : 0;
  float result;
  std::memcpy(&result, &whole, sizeof result);
  return result;
}

// Whether one of `part` numbers is higher than `border`.
inline bool any_higher(const float* numbers, float border) {
  std::int32_t found = 0;
  for (std::size_t i = 0; i < part; ++i) found |= numbers[i] > border;
  return found != 0;
}

// The best so far, in order.
struct Ranking {
  std::size_t most;
  std::int32_t* tokens;
  float* values;

  float border() const { return values[most - 1]; }

  void offer(std::size_t token, float value) {
    if (!(value > border())) return;  // nor is NaN
    std::size_t at = most - 1;
    for (; at > 0 && value > values[at - 1]; --at) {
      values[at] = values[at - 1];
      tokens[at] = tokens[at - 1];
    }
    values[at] = value;
    tokens[at] = static_cast<std::int32_t>(token);
  }
};

inline void rank(const float* logits, std::size_t size, Ranking ranking) {
  for (std::size_t i = 0; i < ranking.most; ++i) {
    ranking.tokens[i] = -1;
    ranking.values[i] = -std::numeric_limits<float>::infinity();
  }
  std::size_t first = 0;
  for (; first + part <= size; first += part) {
    if (!any_higher(logits + first, ranking.border())) continue;
    for (std::size_t x = first; x < first + part; ++x) ranking.offer(x, logits[x]);
  }
  for (; first < size; ++first) ranking.offer(first, logits[first]);
}

// The sum of exp(logit - highest); number i is added to strand i mod 16, the strands by halves.
inline float weigh(const float* logits, std::size_t size, float highest) {
  float sums[width] = {};
  std::size_t first = 0;
  for (; first + width <= size; first += width) {
    for (std::size_t i = 0; i < width; ++i) {
      sums[i] += quick_exponential(logits[first + i] - highest);
    }
  }
  for (std::size_t i = 0; first + i < size; ++i) {
    sums[i] += quick_exponential(logits[first + i] - highest);
  }
  for (std::size_t half = width / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[half + i];
  }
  return sums[0];
}

double likeliest_of_row(const float* logits, std::size_t size, std::size_t most,
                        std::int32_t* tokens, float* values) {
  rank(logits, size, {most, tokens, values});
  if (tokens[0] < 0) return 0.0;
  double rest = weigh(logits, size, values[0]);
  for (std::size_t i = 0; i < most && tokens[i] >= 0; ++i) {
    rest -= static_cast<double>(quick_exponential(values[i] - values[0]));
  }
  return rest > 0.0 ? rest : 0.0;
}

}  // namespace
}  // namespace forerun
