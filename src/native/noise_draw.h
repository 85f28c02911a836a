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

// No higher word has a bound that reaches what is needed: more than 0, the largest noise at most.
inline std::uint32_t highest_word(double needed) {
  const auto bits = static_cast<std::int32_t>((bound_at_zero_bits - needed) / bound_per_bit) + 1;
  const auto h = static_cast<std::uint32_t>(bits_as<float>(bits));
  return h >= 0xFFFFFFu ? 0xFFFFFFFFu : (h << 8) | 0xFFu;
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

// Scores as they are, any numbers. Rounding is monotone: if a sum with a bound of the noise falls
// short of the highest, so does the sum with the noise itself.
struct PlainScores {
  using Bound = double;

  const double* scores;

  double exact(std::size_t token) const { return scores[token]; }
  // What the noise of one of these tokens must reach, or less. Differences of any numbers are not
  // monotone, so it is all or nothing.
  template <std::size_t count>
  double needed(std::size_t first, double highest) const {
    std::int64_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
      found |= scores[first + i] + largest_noise >= highest;
    }
    return found != 0 ? 0 : 2 * largest_noise;
  }
  // What no token's sum with its noise exceeds, by the high words; and what that must reach.
  template <std::size_t count>
  void bounds(std::size_t first, const std::uint32_t (&high)[count], double (&bound)[count]) const {
    for (std::size_t i = 0; i < count; ++i) bound[i] = scores[first + i] + bound_of(high[i]);
  }
  static double limit(double highest) { return highest; }
};

// Finds argmax(score + noise) of the tokens it is offered, ties to the lowest. The first one
// had better have a high score: with it as the one to beat, most others fall at once.
template <class Lanes>
class Drawer {
 public:
  Drawer(const NoiseAddress& at, std::size_t token, double score)
      : wide_(at), single_(at), best_(token), highest_(value(token, score)) {}

  std::size_t best() const { return best_; }

  // One token, without its logarithms if it can't win.
  void offer(std::size_t token, double score) {
    if (score + largest_noise < highest_) return;
    const auto high = Maker<Scalar>::philox(single_, token / 4, domain_high);
    const auto word = static_cast<std::uint32_t>(high.word[token % 4]);
    if (score + bound_of(word) >= highest_) take(token, score);
  }

  // All tokens below `count`.
  template <class Scores>
  void offer_all(const Scores& scores, std::size_t count) {
    std::size_t first = 0;
    for (; first + tokens <= count; first += tokens) look_at_full(scores, first);
    for (; first < count; ++first) offer(first, scores.exact(first));
  }

 private:
  using Block = typename Maker<Lanes>::Block;
  static constexpr std::size_t group = Maker<Lanes>::tokens, tokens = 2 * group;

  template <class Scores>
  void look_at_full(const Scores& scores, std::size_t first) {
    const double needed = scores.template needed<tokens>(first, highest_);
    if (needed > largest_noise) return;
    const Block one = Maker<Lanes>::philox(wide_, first / 4, domain_high);
    const Block other = Maker<Lanes>::philox(wide_, (first + group) / 4, domain_high);
    // Most groups fall by their lowest word, whose score has not to be looked at.
    if (needed > 0 && lowest(one, other) > highest_word(needed)) return;
    std::uint32_t high[tokens];
    Lanes::store(one.word, high);
    Lanes::store(other.word, high + group);
    typename Scores::Bound bound[tokens];
    scores.bounds(first, high, bound);
    const typename Scores::Bound limit = scores.limit(highest_);
    std::int32_t found = 0;
    for (std::size_t i = 0; i < tokens; ++i) found |= bound[i] >= limit;
    if (!found) return;
    for (std::size_t i = 0; i < tokens; ++i) {
      if (bound[i] >= limit) take(first + i, scores.exact(first + i));
    }
  }

  static std::uint32_t lowest(const Block& one, const Block& other) {
    auto low = Lanes::smaller(one.word[0], other.word[0]);
    for (int i = 1; i < 4; ++i) {
      low = Lanes::smaller(low, Lanes::smaller(one.word[i], other.word[i]));
    }
    return Lanes::smallest(low);
  }

  void take(std::size_t token, double score) {
    const double here = value(token, score);
    if (here > highest_ || (here == highest_ && token < best_)) {
      highest_ = here;
      best_ = token;
    }
  }

  // score + noise, with the very noise that `make` gives.
  double value(std::size_t token, double score) const {
    const auto high = Maker<Scalar>::philox(single_, token / 4, domain_high);
    const auto low = Maker<Scalar>::philox(single_, token / 4, domain_low);
    return score + Maker<Scalar>::gumbel(high.word[token % 4], low.word[token % 4]);
  }

  const typename Maker<Lanes>::Place wide_;
  const Maker<Scalar>::Place single_;
  std::size_t best_;
  double highest_;
};

template <class Lanes>
std::size_t draw(const NoiseAddress& at, const double* scores, std::size_t vocab_size) {
  const std::size_t start = best_score(scores, vocab_size);
  if (!(scores[start] - scores[start] == 0)) return start;  // infinite or no number
  Drawer<Lanes> drawer(at, start, scores[start]);
  drawer.offer_all(PlainScores{scores}, vocab_size);
  return drawer.best();
}

// The highest scores with their noise, of tokens that may stand far apart: a block for each.
template <class Lanes>
class TokenRanker {
 public:
  TokenRanker(const NoiseAddress& at, const float* logits, const std::uint32_t* tokens,
              std::size_t count, double temperature)
      : wide_(at), single_(at), logits_(logits), tokens_(tokens), count_(count),
        temperature_(temperature), inverse_(1 / temperature < 1e300 ? 1 / temperature : 1e300) {
    std::size_t i = 0;
    Reals highest = Reals{} - __builtin_huge_val();
    for (; i + width <= count; i += width) {
      highest = Lanes::larger(Lanes::reals(logits + i), highest);
    }
    highest_ = Lanes::largest(highest);
    for (; i < count; ++i) highest_ = logits[i] > highest_ ? logits[i] : highest_;
  }

  std::size_t rank(std::size_t most, Ranked* best) {
    best_ = best;
    most_ = most;
    for (std::size_t first = 0; first < count_; first += width) look_at(first);
    return kept_;
  }

 private:
  using Words = typename Lanes::Words;
  using Reals = typename Lanes::Reals;
  static constexpr std::size_t width = Lanes::width;

  // Leaves out, by the high words alone, what can't be among the best.
  void look_at(std::size_t first) {
    if (count_ - first >= width) return look_at(tokens_ + first, logits_ + first, width, first);
    std::uint32_t tokens[width] = {};
    float logits[width] = {};
    std::memcpy(tokens, tokens_ + first, sizeof(std::uint32_t) * (count_ - first));
    std::memcpy(logits, logits_ + first, sizeof(float) * (count_ - first));
    look_at(tokens, logits, count_ - first, first);
  }

  void look_at(const std::uint32_t* tokens, const float* logits, std::size_t some,
               std::size_t first) {
    const Words ids = Lanes::load(tokens), word = ids & 3;
    const auto made = Maker<Lanes>::philox_of(wide_, ids >> 2, domain_high);
    const Words high = word < 2 ? (word == 0 ? made.word[0] : made.word[1])
                                : (word == 2 ? made.word[2] : made.word[3]);
    // As `bound_of`, in double precision: the bits of h as a number are at least log2(h).
    const Reals h = bits_as<Reals>(Words((high >> 8) | mantissa_base)) - two_52;
    const Reals log2 = bits_as<Reals>(Words((bits_as<Words>(h) >> 20) | mantissa_base)) - two_52;
    const Reals noise = (24.0 + 1023.0) * ln_2 + 2 * slack - log2 * (ln_2 * 0x1p-32);
    const Reals bound = (Lanes::reals(logits) - highest_) * inverse_ + noise;
    if (kept_ == most_ && !Lanes::reaches(bound, limit_)) return;
    double bounds[width];
    std::memcpy(bounds, &bound, sizeof bounds);
    for (std::size_t i = 0; i < some; ++i) {
      if (kept_ == most_ && !(bounds[i] >= limit_)) continue;
      take(first + i, (static_cast<double>(logits[i]) - highest_) / temperature_);
    }
  }

  void take(std::size_t place, double score) {
    const std::uint32_t token = tokens_[place];
    const auto high = Maker<Scalar>::philox(single_, token / 4, domain_high);
    const auto low = Maker<Scalar>::philox(single_, token / 4, domain_low);
    score += Maker<Scalar>::gumbel(high.word[token % 4], low.word[token % 4]);
    if (!(score - score == 0)) return;  // infinite or no number
    if (kept_ == most_ && !(score > best_[kept_ - 1].score)) return;
    std::size_t at = kept_ < most_ ? kept_++ : kept_ - 1;
    for (; at > 0 && score > best_[at - 1].score; --at) best_[at] = best_[at - 1];
    best_[at] = {place, score};
    const double last = best_[kept_ - 1].score;
    limit_ = last - 1e-12 * (last < 0 ? -last : last);
  }

  const typename Maker<Lanes>::Place wide_;
  const Maker<Scalar>::Place single_;
  const float* logits_;
  const std::uint32_t* tokens_;
  std::size_t count_;
  double temperature_, inverse_;
  double highest_;
  double limit_ = -__builtin_huge_val();  // what a bound must reach: roundings are far smaller
  std::size_t most_ = 0, kept_ = 0;
  Ranked* best_ = nullptr;
};

template <class Lanes>
std::size_t rank(const NoiseAddress& at, const float* logits, const std::uint32_t* tokens,
                 std::size_t count, double temperature, std::size_t most, Ranked* best) {
  return TokenRanker<Lanes>(at, logits, tokens, count, temperature).rank(most, best);
}

template <class Lanes>
constexpr NoiseKernels kernels_of() {
  return {Maker<Lanes>::make, Maker<Lanes>::at, draw<Lanes>, rank<Lanes>, Maker<Lanes>::of_words};
}

}  // namespace
}  // namespace noise

}  // namespace forerun
