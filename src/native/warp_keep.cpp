#include "warp_keep.h"

#include <cstdint>
#include <functional>

#include "softmax_lanes.h"

namespace forerun {
namespace {

constexpr std::size_t part = 64;
constexpr std::size_t few = 128;  // so many are sorted as soon as looked at

void fill_masses(std::vector<Kept>& kept) {
  std::vector<double> scores;
  scores.reserve(kept.size());
  for (const Kept& one : kept) scores.push_back(one.score);
  warp_kernels().exponentials(scores.data(), scores.size(), scores.data());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i].mass = scores[i];
}

// The sum of the masses as if the whole row were summed: what isn't there has mass 0.
double sum_of(const std::vector<Kept>& ascending) {
  double sums[noise::strands] = {};
  for (const Kept& one : ascending) sums[one.token % noise::strands] += one.mass;
  return noise::fold(sums);
}

// The definition: the fewest of the best whose probabilities, added one by one, reach p. False if
// they don't.
bool cut_sorted(std::vector<Kept>& kept, double total, double p) {
  std::sort(kept.begin(), kept.end(), is_better);
  double reached = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    reached += kept[i].mass / total;
    if (reached >= p) {
      kept.resize(i + 1);
      return true;
    }
  }
  return false;
}

// The same without sorting but in the one bucket of scores where the sum reaches p; sums in any
// order differ by less than `doubt`. False, and nothing is changed, where that may decide.
class BucketCut {
 public:
  BucketCut(std::vector<Kept>& kept, double total, double p, std::size_t vocab_size)
      : kept_(kept),
        total_(total),
        p_(p),
        doubt_(static_cast<double>(2 * vocab_size + 16) * 0x1p-52) {
    double lowest = 0;
    for (const Kept& one : kept) lowest = std::min(lowest, one.score);
    per_score_ = lowest < -1e-9 ? (buckets - 1) / lowest : 0;
  }

  bool cut() {
    double masses[buckets] = {};
    for (const Kept& one : kept_) masses[bucket_of(one)] += one.mass / total_;
    double reached = 0;
    std::size_t at = 0;
    while (at < buckets && reached + masses[at] < p_ + doubt_) reached += masses[at++];
    if (at == buckets || reached > p_ - doubt_) return false;
    std::vector<Kept> border;
    for (const Kept& one : kept_) {
      if (bucket_of(one) == at) border.push_back(one);
    }
    std::sort(border.begin(), border.end(), is_better);
    for (const Kept& last : border) {
      reached += last.mass / total_;
      if (std::abs(reached - p_) <= doubt_) return false;
      if (reached >= p_) return cut_after(last);
    }
    return false;
  }

 private:
  static constexpr std::size_t buckets = 256;

  std::size_t bucket_of(const Kept& one) const {
    return std::min(buckets - 1, static_cast<std::size_t>(one.score * per_score_));
  }

  bool cut_after(const Kept& last) {
    const auto is_worse = [last](const Kept& one) { return is_better(last, one); };
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), is_worse), kept_.end());
    return true;
  }

  std::vector<Kept>& kept_;
  const double total_, p_, doubt_;
  double per_score_;
};

}  // namespace

template <class Number>
std::vector<Kept> Keeper<Number>::keep() {
  constexpr double all = -std::numeric_limits<double>::infinity();
  const double p = settings_.top_p;
  const bool has_top_k = settings_.top_k > 0 && settings_.top_k < size_;
  if (has_top_k) {
    keep_top_k();
  } else if (p >= 1) {
    collect(below(scale_.highest + scale_.temperature * settings_.least_score));
  }
  if (p < 1 && has_top_k) {
    fill_masses(kept_);
    keep_top_p(sum_of(kept_), true);
  } else if (p < 1) {
    const double total = row_kernels(weights_).sum(weights_, size_, scale_);
    // Who is kept has at least an equal share of what is left when the sum first reaches p.
    const double border = std::log((1 - p) / static_cast<double>(size_) * total);
    collect(below(scale_.highest + scale_.temperature * border));
    fill_masses(kept_);
    keep_top_p(total, false);
  }
  if (settings_.least_score > all) {
    const auto is_low = [&](const Kept& one) { return !(one.score >= settings_.least_score); };
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), is_low), kept_.end());
  }
  return std::move(kept_);
}

// A weight so far below that rounding can't bring its score up to that of `weight`.
template <class Number>
double Keeper<Number>::below(double weight) const {
  const double distance = std::abs(scale_.highest) + std::abs(weight);
  return weight - (distance * 0x1p-48 + 1e-300);
}

// Keeps what weighs at least this, in ascending order; not what a tiny temperature made impossible.
template <class Number>
void Keeper<Number>::collect(double least_weight) {
  kept_.clear();
  for (std::size_t i = 0; i < maxima_.size(); ++i) {
    if (!(maxima_[i] >= least_weight)) continue;
    const std::size_t stop = std::min(size_, (i + 1) * part);
    for (std::size_t token = i * part; token < stop; ++token) {
      if (!(static_cast<double>(weights_[token]) >= least_weight)) continue;
      const Kept one{score(token), 0, token};
      if (one.score > -std::numeric_limits<double>::infinity()) kept_.push_back(one);
    }
  }
}

template <class Number>
void Keeper<Number>::keep_top_k() {
  const std::size_t k = settings_.top_k;
  // The k-th largest of the parts' maxima: k tokens at least reach it.
  std::vector<double> heads = maxima_;
  if (heads.size() < k) heads.assign(weights_, weights_ + size_);
  const auto border = heads.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(heads.begin(), border, heads.end(), std::greater<double>());
  collect(below(*border));
  if (kept_.size() <= k) return;
  const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(kept_.begin(), end - 1, kept_.end(), is_better);
  kept_.erase(end, kept_.end());
  std::sort(kept_.begin(), kept_.end(),
            [](const Kept& one, const Kept& other) { return one.token < other.token; });
}

// `is_whole`: what is kept by now is all that has probability.
template <class Number>
void Keeper<Number>::keep_top_p(double total, bool is_whole) {
  const double p = settings_.top_p;
  if (kept_.size() > few && BucketCut(kept_, total, p, size_).cut()) return;
  if (cut_sorted(kept_, total, p) || is_whole) return;
  collect(-std::numeric_limits<double>::infinity());  // rounding is to blame
  fill_masses(kept_);
  cut_sorted(kept_, total, p);
}

template class Keeper<float>;
template class Keeper<double>;

}  // namespace forerun
