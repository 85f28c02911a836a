// The warp's sweeps over the lanes of one instruction set: included by warp_*.cpp only.
#pragma once

#include "noise_draw.h"
#include "softmax_lanes.h"
#include "warp_kernels.h"

namespace forerun {
namespace noise {
namespace {

// Scores for the draw. A multiplication is sooner done than the division; `slack` is far more than
// the difference between the two, wherever a score is near enough to win.
template <class Number>
class ScaledScores {
 public:
  ScaledScores(const Number* weights, const Scale& scale) : weights_(weights), scale_(scale) {
    const double inverse = 1.0 / scale.temperature;
    inverse_ = inverse < 1e300 ? inverse : 1e300;  // at the smallest temperatures it is infinite
  }

  double exact(std::size_t token) const { return distance(token) / scale_.temperature; }
  double above(std::size_t token) const { return distance(token) * inverse_ + slack; }

 private:
  double distance(std::size_t token) const {
    return static_cast<double>(weights_[token]) - scale_.highest;
  }

  const Number* weights_;
  const Scale scale_;
  double inverse_;
};

template <class Lanes, class Number>
struct Row {
  using Reals = typename Lanes::Reals;
  static constexpr std::size_t width = Lanes::width;

  // The score of lanes of weights, with the division left out where it changes nothing.
  template <class Sweep>
  static inline auto with_score(const Scale& scale, Sweep sweep) {
    const double highest = scale.highest, temperature = scale.temperature;
    if (temperature == 1.0) return sweep([=](Reals x) { return x - highest; });
    return sweep([=](Reals x) { return (x - highest) / temperature; });
  }

  static bool maxima(const Number* weights, std::size_t size, double* maxima) {
    const Parts<Number> row(weights, size);
    Reals broken{};
    for (std::size_t part = 0; part < row.count(); ++part) {
      const Number* const numbers = row[part];
      for (std::size_t i = 0; i < row.length; i += width) {
        broken = Lanes::reals(numbers + i) < infinity ? broken : Reals{} + 1.0;
      }
      maxima[part] = Softmax<Lanes>::largest(numbers);
    }
    double lanes[width], any = 0;
    std::memcpy(lanes, &broken, sizeof lanes);
    for (const double lane : lanes) any += lane;
    return any == 0;
  }

  static void scores(const Number* weights, std::size_t size, const Scale& scale, double* out) {
    const Parts<Number> row(weights, size);
    with_score(scale, [&](auto score) {
      for (std::size_t first = 0; first < size; first += width) {
        const Number* const part = row[first / row.length];
        const Reals made = score(Lanes::reals(part + first % row.length));
        const std::size_t left = size - first;
        std::memcpy(out + first, &made, sizeof(double) * (left < width ? left : width));
      }
      return 0;
    });
  }

  static double sum(const Number* weights, std::size_t size, const Scale& scale) {
    const Parts<Number> row(weights, size);
    return with_score(scale, [&](auto score) { return Softmax<Lanes>::sum(row, score); });
  }

  static std::size_t draw(const NoiseAddress& at, const Number* weights, std::size_t size,
                          const Scale& scale, std::size_t best) {
    const ScaledScores<Number> scores(weights, scale);
    Drawer<Lanes> drawer(at, best, scores.exact(best));
    drawer.offer_all(scores, size);
    return drawer.best();
  }

  static constexpr RowKernels<Number> kernels() { return {maxima, scores, sum, draw}; }
};

template <class Lanes>
void shift_logits(const float* logits, const double* shift, std::size_t size, double* weights) {
  using Reals = typename Lanes::Reals;
  constexpr std::size_t width = Lanes::width;
  std::size_t x = 0;
  for (; x + width <= size; x += width) {
    Reals made = Lanes::reals(logits + x);
    if (shift) made = made + Lanes::reals(shift + x);
    std::memcpy(weights + x, &made, sizeof made);
  }
  for (; x < size; ++x) {
    weights[x] = Scalar::reals(logits + x) + (shift ? shift[x] : 0.0);
  }
}

template <class Lanes>
constexpr WarpKernels warp_kernels_of() {
  return {Row<Lanes, float>::kernels(),  Row<Lanes, double>::kernels(),
          shift_logits<Lanes>,           Softmax<Lanes>::law,
          Softmax<Lanes>::exponentials,  Softmax<Lanes>::log_normaliser};
}

}  // namespace
}  // namespace noise
}  // namespace forerun
