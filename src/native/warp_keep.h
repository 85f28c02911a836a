// Which tokens top-k, top-p and min-p keep of a row: the compiled twin of those filters in
// core/warp.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "warp.h"
#include "warp_kernels.h"

namespace forerun {

struct Kept {
  double score;
  double mass;  // exp(score), once asked for
  std::size_t token;
};

// Best first; of equals the lowest token.
inline bool is_better(const Kept& one, const Kept& other) {
  return one.score > other.score || (one.score == other.score && one.token < other.token);
}

// Sorting 49,152 tokens would take longer than a pass of a small model, so filters look at few:
// parts of the row whose maximum is too low are passed over, and of the rest only those tokens
// become `Kept` that may stay. What decides between two tokens is always their exact score.
template <class Number>
class Keeper {
 public:
  // `maxima` are those of the row's parts of 64.
  Keeper(const Number* weights, std::size_t size, const std::vector<double>& maxima,
         const Scale& scale, const WarpSettings& settings)
      : weights_(weights), size_(size), maxima_(maxima), scale_(scale), settings_(settings) {}

  // What is left of the row, in no order.
  std::vector<Kept> keep();

 private:
  double score(std::size_t token) const {
    // A logit of -0 counts as 0.
    return (static_cast<double>(weights_[token]) + 0.0 - scale_.highest) / scale_.temperature;
  }
  double below(double weight) const;
  void collect(double least_weight);
  void keep_top_k();
  void keep_top_p(double total, bool is_whole);

  const Number* weights_;
  std::size_t size_;
  const std::vector<double>& maxima_;
  const Scale& scale_;
  const WarpSettings& settings_;
  std::vector<Kept> kept_;
};

extern template class Keeper<float>;
extern template class Keeper<double>;

}  // namespace forerun
