// The warp's sweeps over the lanes of one instruction set: included by warp_*.cpp only.
#pragma once

#include "noise_draw.h"
#include "softmax_lanes.h"
#include "warp_kernels.h"

namespace forerun {
namespace noise {
namespace {

// Scores for the draw, of which the highest is 0. So who can win is within some 150 of it, where
// single precision is off by less than `slack`; who is further down falls short by far more.
template <class Number>
class ScaledScores {
 public:
  using Bound = float;

  ScaledScores(const Number* weights, const double* maxima, const Scale& scale)
      : weights_(weights), maxima_(maxima), scale_(scale) {
    const double inverse = 1.0 / scale.temperature;
    // At the smallest temperatures it is infinite; a smaller one gives larger bounds.
    inverse_ = static_cast<float>(inverse < 1e30 ? inverse : 1e30);
    highest_ = static_cast<Number>(scale.highest);
  }

  double exact(std::size_t token) const {
    return (static_cast<double>(weights_[token]) - scale_.highest) / scale_.temperature;
  }

  template <std::size_t count>
  double needed(std::size_t first, double highest) const {
    static_assert(Parts<Number>::length % count == 0);
    const double distance = maxima_[first / Parts<Number>::length] - scale_.highest;
    return limit(highest) - distance * inverse_;
  }

  template <std::size_t count>
  void bounds(std::size_t first, const std::uint32_t (&high)[count], float (&bound)[count]) const {
    constexpr float at_zero_bits = bound_at_zero_bits, per_bit = bound_per_bit;
    for (std::size_t i = 0; i < count; ++i) {
      const float h = static_cast<float>(static_cast<std::int32_t>(high[i] >> 8));
      const float noise = at_zero_bits - per_bit * static_cast<float>(bits_as<std::int32_t>(h));
      bound[i] = static_cast<float>(weights_[first + i] - highest_) * inverse_ + noise;
    }
  }
  static float limit(double highest) { return static_cast<float>(highest) - slack; }

 private:
  static constexpr float slack = 1e-3f;

  const Number* weights_;
  const double* maxima_;
  const Scale scale_;
  Number highest_;
  float inverse_;
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
    using Whole = decltype(Lanes::whole(weights));
    constexpr std::size_t step = sizeof(Whole) / sizeof(Number);
    constexpr Number endless = static_cast<Number>(infinity);
    const Parts<Number> row(weights, size);
    Whole broken{};
    for (std::size_t part = 0; part < row.count(); ++part) {
      const Number* const numbers = row[part];
      for (std::size_t i = 0; i < row.length; i += step) {
        broken = Lanes::whole(numbers + i) < endless ? broken : Whole{} + Number{1};
      }
      maxima[part] = Softmax<Lanes>::largest(numbers);
    }
    return Lanes::largest(broken) == 0;
  }

  static void scores(const Number* weights, std::size_t size, const Scale& scale, double* out) {
    const Parts<Number> row(weights, size);
    with_score(scale, [&](auto score) {
      for (std::size_t first = 0; first < size; first += width) {
        const Number* const part = row[first / row.length];
        const Reals made = score(Lanes::reals(part + first % row.length) + 0.0);  // no -0
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
                          const double* maxima, const Scale& scale, std::size_t best) {
    const ScaledScores<Number> scores(weights, maxima, scale);
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
    Reals made = Lanes::reals(logits + x) + 0.0;  // no -0, as numpy has it
    if (shift) made = made + Lanes::reals(shift + x);
    std::memcpy(weights + x, &made, sizeof made);
  }
  for (; x < size; ++x) {
    weights[x] = Scalar::reals(logits + x) + 0.0 + (shift ? shift[x] : 0.0);
  }
}

template <class Lanes>
double largest_of(const float* logits, std::size_t size) {
  return Softmax<Lanes>::largest(Parts<float>(logits, size));
}

template <class Lanes>
constexpr WarpKernels warp_kernels_of() {
  return {Row<Lanes, float>::kernels(),  Row<Lanes, double>::kernels(),
          shift_logits<Lanes>,           Softmax<Lanes>::law,
          Softmax<Lanes>::exponentials,  largest_of<Lanes>};
}

}  // namespace
}  // namespace noise
}  // namespace forerun
