// argmax(scores + noise) without making all the noise: included by noise*.cpp only.
//
// With u the token's uniform number, g = -log(-log(1 - u)) <= -log(u) <= -log(h / 2^24), where h is
// the high word's upper 24 bits; and log2(h) is at least the bits of h as a float, read as an
// integer, over 2^23 and less the exponent's bias, because log2(1 + m) >= m on [0, 1]. So the high
// word alone, with no logarithm, tells that nearly every token cannot win; the few others' noise is
// made in full. Nothing is approximate: a bound can keep a loser, never drop a winner.
#pragma once

#include "noise_lanes.h"

namespace forerun {

namespace noise {
namespace {

constexpr double ln_2 = 0.69314718055994530942;
// Far more than rounding can take from a bound of at most 105, and from the noise's own logarithms.
constexpr double slack = 1e-9;
constexpr double bound_at_zero_bits = 151.0 * ln_2 + slack;
constexpr double bound_per_bit = ln_2 / 8388608.0;
// The noise's largest value, at the smallest u of all: 2^-53.
constexpr double largest_noise = 53.0 * ln_2 + slack;

// An upper bound of the noise of a token with this high word.
inline double bound_of(std::uint32_t high) {
  const float h = static_cast<float>(static_cast<std::int32_t>(high >> 8));
  return bound_at_zero_bits - bound_per_bit * bits_as<std::int32_t>(h);
}

// Whether any of these, each with `more` added, is at least `least`. Rounding is monotone: if the
// sum with a bound falls short of `least`, so does the sum with the noise itself.
template <std::size_t count>
inline bool any_reaches(const double* scores, double more, double least) {
  std::int64_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= scores[i] + more >= least;
  return found != 0;
}

// Where the largest score stands first, or the first NaN.
inline std::size_t best_score(const double* scores, std::size_t vocab_size) {
  constexpr std::size_t part = 64;
  std::size_t best = 0;
  for (std::size_t first = 0; first < vocab_size; first += part) {
    const std::size_t stop = first + part < vocab_size ? first + part : vocab_size;
    const double highest = scores[best];
    std::int64_t found = 0;
    for (std::size_t x = first; x < stop; ++x) found |= !(scores[x] <= highest);
    for (std::size_t x = first; found && x < stop; ++x) {
      if (scores[x] != scores[x]) return x;
      if (scores[x] > scores[best]) best = x;
    }
  }
  return best;
}

template <class Lanes>
class Drawer {
 public:
  static std::size_t draw(const NoiseAddress& at, const double* scores, std::size_t vocab_size) {
    // The best score first: with it as the one to beat, most tokens fall at once.
    const std::size_t start = best_score(scores, vocab_size);
    if (!(scores[start] - scores[start] == 0)) return start;  // infinite or no number
    Drawer drawer(at, scores);
    drawer.best_ = start;
    drawer.highest_ = drawer.value(start);
    std::size_t first = 0;
    for (; first + tokens <= vocab_size; first += tokens) drawer.look_at_full(first);
    for (; first < vocab_size; ++first) drawer.try_token(first);
    return drawer.best_;
  }

 private:
  static constexpr std::size_t tokens = Maker<Lanes>::tokens;

  Drawer(const NoiseAddress& at, const double* scores) : wide_(at), single_(at), scores_(scores) {}

  void look_at_full(std::size_t first) {
    const double* scores = scores_ + first;
    if (!any_reaches<tokens>(scores, largest_noise, highest_)) return;
    std::uint32_t high[tokens];
    Lanes::store(Maker<Lanes>::philox(wide_, first / 4, domain_high).word, high);
    double bound[tokens];
    for (std::size_t i = 0; i < tokens; ++i) {
      bound[i] = scores[i] + bound_of(high[i]);
    }
    if (!any_reaches<tokens>(bound, 0.0, highest_)) return;
    for (std::size_t i = 0; i < tokens; ++i) {
      if (bound[i] >= highest_) try_token(first + i);
    }
  }

  void try_token(std::size_t token) {
    const double here = value(token);
    if (here > highest_ || (here == highest_ && token < best_)) {
      highest_ = here;
      best_ = token;
    }
  }

  // scores + noise, with the very noise that `make` gives.
  double value(std::size_t token) const {
    const auto high = Maker<Scalar>::philox(single_, token / 4, domain_high);
    const auto low = Maker<Scalar>::philox(single_, token / 4, domain_low);
    return scores_[token] + Maker<Scalar>::gumbel(high.word[token % 4], low.word[token % 4]);
  }

  const typename Maker<Lanes>::Place wide_;
  const Maker<Scalar>::Place single_;
  const double* scores_;
  std::size_t best_ = 0;
  double highest_ = 0;
};

}  // namespace
}  // namespace noise

}  // namespace forerun
