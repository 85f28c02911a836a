#include "warp.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "instruction_set.h"
#include "noise_draw.h"
#include "row_math.h"
#include "warp_keep.h"
#include "warp_kernels.h"

namespace forerun {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t chunk = 4096;  // numbers of a row that one thread adds up

// One row of weights under the settings that come after them.
template <class Number>
class WeighedRow {
 public:
  WeighedRow(const Number* weights, std::size_t size, const WarpSettings& settings)
      : weights_(weights), size_(size), settings_(settings), maxima_((size + 63) / 64) {
    is_broken_ = !row_kernels(weights).maxima(weights, size, maxima_.data());
    scale_ = {*std::max_element(maxima_.begin(), maxima_.end()) + 0.0, settings.temperature};
  }

  double highest() const { return scale_.highest; }

  RowState state() const {
    if (is_broken_) return RowState::broken;
    return scale_.highest == -infinity ? RowState::empty : RowState::sound;
  }

  std::size_t choose(const NoiseAddress& at) const {
    const std::size_t likeliest = best();
    if (settings_.temperature == 0) return likeliest;
    if (!filters()) {
      const auto& kernels = row_kernels(weights_);
      return kernels.draw(at, weights_, size_, maxima_.data(), scale_, likeliest);
    }
    noise::Drawer<noise::Scalar> drawer(at, likeliest, 0.0);
    for (const Kept& one : kept()) drawer.offer(one.token, one.score);
    return drawer.best();
  }

  void score(double* scores) const {
    if (settings_.temperature != 0 && !filters()) {
      return row_kernels(weights_).scores(weights_, size_, scale_, scores);
    }
    std::fill(scores, scores + size_, -infinity);
    if (settings_.temperature == 0) {
      scores[best()] = scale_.highest;
    } else {
      for (const Kept& one : kept()) scores[one.token] = one.score;
    }
  }

 private:
  bool filters() const {
    const bool has_top_k = settings_.top_k > 0 && settings_.top_k < size_;
    return has_top_k || settings_.top_p < 1 || settings_.least_score > -infinity;
  }

  std::vector<Kept> kept() const {
    return Keeper<Number>(weights_, size_, maxima_, scale_, settings_).keep();
  }

  // Where the highest weight stands first.
  std::size_t best() const {
    const auto part = std::find(maxima_.begin(), maxima_.end(), scale_.highest) - maxima_.begin();
    std::size_t token = static_cast<std::size_t>(part) * 64;
    while (static_cast<double>(weights_[token]) != scale_.highest) ++token;
    return token;
  }

  const Number* weights_;
  std::size_t size_;
  const WarpSettings& settings_;
  std::vector<double> maxima_;  // of each 64 weights
  bool is_broken_;
  Scale scale_;
};

// Room for one row, kept because making it anew takes longer than most of what is done there.
std::vector<double>& room() {
  thread_local std::vector<double> weights;
  return weights;
}

}  // namespace

const WarpKernels& warp_kernels() {
#ifdef FORERUN_X86
  switch (instruction_set()) {
    case InstructionSet::avx512: return avx512_warp;
    case InstructionSet::avx2: return avx2_warp;
    case InstructionSet::portable: break;
  }
#endif
  return portable_warp;
}

Warp::Warp(WarpSettings settings, std::size_t vocab_size)
    : settings_(std::move(settings)), vocab_size_(vocab_size) {
  if (vocab_size == 0) throw std::invalid_argument("no vocabulary");
  if (!settings_.shift.empty() && settings_.shift.size() != vocab_size) {
    throw std::invalid_argument("a shift of another size than the vocabulary");
  }
  for (const std::size_t stop : settings_.stops) {
    if (stop >= vocab_size) throw std::invalid_argument("a stop outside of the vocabulary");
  }
}

// Calls `use` with the weighed row, if it is sound, and its logits' highest.
template <class Use>
RowState Warp::with_row(const float* logits, const TextSoFar& text, Use use) const {
  const WeighedRow<float> plain(logits, vocab_size_, settings_);
  if (plain.state() == RowState::broken || !changes(text)) {
    if (plain.state() == RowState::sound) use(plain, plain.highest());
    return plain.state();
  }
  std::vector<double>& weights = room();
  weigh(logits, text, weights);
  const WeighedRow<double> changed(weights.data(), vocab_size_, settings_);
  if (changed.state() == RowState::sound) use(changed, plain.highest());
  return changed.state();
}

RowState Warp::choose(const float* logits, const TextSoFar& text, const NoiseAddress& at,
                      Chosen& chosen) const {
  return with_row(logits, text, [&](const auto& row, double highest) {
    chosen = {row.choose(at), highest};
  });
}

RowState Warp::score(const float* logits, const TextSoFar& text, double* scores) const {
  return with_row(logits, text, [&](const auto& row, double) { row.score(scores); });
}

// Whether weights are other than the logits.
bool Warp::changes(const TextSoFar& text) const {
  return !settings_.shift.empty() || text.prompt_size > 0 || !text.counts.empty() ||
         (text.bans_stops && !settings_.stops.empty());
}

// Masks and bias, the ban of stops, then penalties: `Warp.weigh` of core/warp.py.
void Warp::weigh(const float* logits, const TextSoFar& text, std::vector<double>& weights) const {
  weights.resize(vocab_size_);
  const double* const shift = settings_.shift.empty() ? nullptr : settings_.shift.data();
  warp_kernels().shift(logits, shift, vocab_size_, weights.data());
  if (text.bans_stops) {
    for (const std::size_t stop : settings_.stops) weights[stop] = -infinity;
  }
  penalise(text, weights.data());
}

void Warp::penalise(const TextSoFar& text, double* weights) const {
  const double factor = settings_.repetition_penalty;
  const auto repeat = [&](std::uint32_t token) {
    double& weight = weights[token];
    weight = weight > 0 ? weight / factor : weight * factor;
  };
  const std::uint32_t* const end = text.prompt + text.prompt_size;
  const bool is_known = text.prompt_size == 0 || end[-1] < vocab_size_;
  if (!is_known || std::any_of(text.counts.begin(), text.counts.end(),
                               [&](const auto& count) { return count.first >= vocab_size_; })) {
    throw std::invalid_argument("a text with a token outside of the vocabulary");
  }
  if (factor != 1) {
    std::for_each(text.prompt, end, repeat);
    for (const auto& count : text.counts) {
      if (!std::binary_search(text.prompt, end, count.first)) repeat(count.first);
    }
  }
  for (const auto& [token, times] : text.counts) {
    weights[token] -= settings_.presence_penalty + settings_.frequency_penalty * times;
  }
}

void softmax(const double* scores, std::size_t size, double* p) {
  warp_kernels().law(scores, size, p);
}

LogNormaliser log_normaliser(const float* logits, std::size_t size) {
  ChunkedSum sum(logits, size, warp_kernels().largest(logits, size));
  for (std::size_t chunk = 0; chunk < sum.chunks(); ++chunk) sum.add(chunk);
  return sum.normaliser();
}

ChunkedSum::ChunkedSum(const float* logits, std::size_t size, double highest)
    : logits_(logits), size_(size), highest_(highest + 0.0), sums_((size + chunk - 1) / chunk) {}

void ChunkedSum::add(std::size_t which) {
  const std::size_t first = which * chunk, count = std::min(chunk, size_ - first);
  sums_[which] =
      row_math().sum_of_exponentials(logits_ + first, count, static_cast<float>(highest_));
}

LogNormaliser ChunkedSum::normaliser() const {
  double whole = 0.0;
  for (const double sum : sums_) whole += sum;
  return {highest_, noise::Maker<noise::Scalar>::logarithm(whole)};
}

void exponentials(const double* x, std::size_t count, double* out) {
  warp_kernels().exponentials(x, count, out);
}

}  // namespace forerun
