// The warp, and the token that it and the noise choose: the compiled twin of core/warp.py, with the
// same bits on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "noise.h"

namespace forerun {

struct WarpSettings {
  double temperature;
  std::size_t top_k;   // 0 is off
  double top_p;        // 1 is off
  double least_score;  // the logarithm of min-p; -inf is off
  double repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<double> shift;       // [vocab] masks and bias; empty if there are none
  std::vector<std::size_t> stops;  // banned as long as the text is too short
};

// What the warp must know of the text before the token in question.
struct TextSoFar {
  const std::uint32_t* prompt;  // distinct and ascending; none without penalties
  std::size_t prompt_size;
  std::vector<std::pair<std::uint32_t, double>> counts;  // of the output's tokens
  bool bans_stops;  // it is too short to end
};

struct LogNormaliser {
  double highest;  // logit
  double log_sum;  // of exp(logit - highest)
};

struct Chosen {
  std::size_t token;
  double highest;  // of the row's logits
};

// What can be wrong with a row.
enum class RowState { sound, broken, empty };  // broken: NaN or infinity; empty: nothing is left

class Warp {
 public:
  // Throws std::invalid_argument if a setting does not fit the vocabulary.
  Warp(WarpSettings settings, std::size_t vocab_size);

  std::size_t vocab_size() const { return vocab_size_; }
  bool is_greedy() const { return settings_.temperature == 0; }

  // argmax(warped log-weights + noise), ties to the lowest token. Both throw
  // std::invalid_argument if the text holds a token that the vocabulary hasn't.
  RowState choose(const float* logits, const TextSoFar& text, const NoiseAddress& at,
                  Chosen& chosen) const;

  // The warped log-weights, -inf where nothing is left: scores[vocab].
  RowState score(const float* logits, const TextSoFar& text, double* scores) const;

 private:
  template <class Use>
  RowState with_row(const float* logits, const TextSoFar& text, Use use) const;
  bool changes(const TextSoFar& text) const;
  void weigh(const float* logits, const TextSoFar& text, std::vector<double>& weights) const;
  void penalise(const TextSoFar& text, double* weights) const;

  WarpSettings settings_;
  std::size_t vocab_size_;
};

// p = exp(scores) over their sum, [size]; the largest score must be finite.
void softmax(const double* scores, std::size_t size, double* p);

LogNormaliser log_normaliser(const float* logits, std::size_t size);

// The same of a row whose highest logit is known, chunk by chunk: whoever makes one, the sum of all
// is the same.
class ChunkedSum {
 public:
  ChunkedSum(const float* logits, std::size_t size, double highest);

  std::size_t chunks() const { return sums_.size(); }
  void add(std::size_t chunk);         // each once, in any thread
  LogNormaliser normaliser() const;    // once all are there

 private:
  const float* logits_;
  std::size_t size_;
  double highest_;
  std::vector<double> sums_;
};

// The exponentials of `count` numbers <= 0, for the tests.
void exponentials(const double* x, std::size_t count, double* out);

}  // namespace forerun
