// Exponentials and their sums over the lanes of one instruction set: included by warp_*.cpp only.
// The compiled twin of core/softmax.py, operation by operation.
#pragma once

#include "noise_lanes.h"
#include "warp_kernels.h"

namespace forerun {
namespace noise {
namespace {

constexpr double infinity = __builtin_huge_val();

// 2^(i/16).
alignas(64) constexpr double roots[16] = {
    0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
    0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0,
    0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
    0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};

// A row in parts of 64 numbers, the last one filled up with -inf.
template <class Number>
class Parts {
 public:
  static constexpr std::size_t length = 64;

  Parts(const Number* row, std::size_t size) : row_(row), whole_(size / length) {
    const std::size_t left = size % length;
    for (std::size_t i = 0; i < length; ++i) {
      last_[i] = i < left ? row[whole_ * length + i] : static_cast<Number>(-infinity);
    }
    count_ = whole_ + (left != 0);
  }

  std::size_t count() const { return count_; }
  const Number* operator[](std::size_t part) const {
    return part < whole_ ? row_ + part * length : last_;
  }

 private:
  const Number* row_;
  std::size_t whole_, count_;
  Number last_[length];
};

// A sum in 32 strands, number i in strand i mod 32 and in ascending order, which are then added
// by halves.
constexpr std::size_t strands = 32;

inline double fold(double* sums) {
  for (std::size_t half = strands / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

template <class Lanes>
struct Softmax {
  using Words = typename Lanes::Words;
  using Reals = typename Lanes::Reals;
  static constexpr std::size_t width = Lanes::width;

  static constexpr double least = -707.0;

  // exp(x) for x <= 0; 0 from `least` on.
  static inline Reals exponential(Reals x) { return x < least ? Reals{} : raised(x); }

  // exp(x), or exp(least): 2^(n/16) from the table and a polynomial on what is left of x.
  static inline Reals raised(Reals x) {
    constexpr double magic = 0x1.8p52;
    const Reals kept = Lanes::larger(x, Reals{} + least);
    const Reals shifted = kept * 0x1.71547652b82fep+4 + magic;
    const Reals n = shifted - magic;
    const Reals r = (kept - n * 0x1.62e42fefa0000p-5) - n * 0x1.cf79abc9e3b3ap-44;
    Reals series = Reals{} + 0x1.6c17bb51f236dp-10;
    series = series * r + 0x1.11120af701debp-7;
    series = series * r + 0x1.55555555194d2p-5;
    series = series * r + 0x1.55555554dd44dp-3;
    series = series * r + 0.5;
    const Reals rest = series * (r * r) + r;
    const Words bits = bits_as<Words>(shifted);
    const Reals root = Lanes::pick(roots, bits);
    const Words result = bits_as<Words>(Reals(root + root * rest)) + ((bits >> 4) << 52);
    return bits_as<Reals>(result);
  }

  // The sum of exp(score(x)) over a row whose highest score is 0; `score` takes and gives lanes.
  // The sum is 1 at least, so that of exp(least), where 0 is meant, no bit is left in it.
  template <class Number, class Score>
  static inline double sum(const Parts<Number>& row, Score score) {
    constexpr std::size_t groups = strands / width;
    Reals sum[groups] = {};
    for (std::size_t part = 0; part < row.count(); ++part) {
      const Number* const numbers = row[part];
      for (std::size_t start = 0; start < Parts<Number>::length; start += strands) {
        for (std::size_t i = 0; i < groups; ++i) {
          sum[i] += raised(score(Lanes::reals(numbers + start + i * width)));
        }
      }
    }
    double sums[strands];
    std::memcpy(sums, sum, sizeof sum);
    return fold(sums);
  }

  // The largest of a part's numbers, NaN left out.
  template <class Number>
  static inline double largest(const Number* part) {
    using Whole = decltype(Lanes::whole(part));
    constexpr std::size_t step = sizeof(Whole) / sizeof(Number);
    Whole top = Whole{} - static_cast<Number>(infinity);
    for (std::size_t i = 0; i < Parts<Number>::length; i += step) {
      top = Lanes::larger(Lanes::whole(part + i), top);
    }
    return static_cast<double>(Lanes::largest(top));
  }

  template <class Number>
  static inline double largest(const Parts<Number>& row) {
    double highest = -infinity;
    for (std::size_t part = 0; part < row.count(); ++part) {
      const double here = largest(row[part]);
      highest = here > highest ? here : highest;
    }
    return highest;
  }

  static void law(const double* scores, std::size_t size, double* out) {
    const Parts<double> row(scores, size);
    const double highest = largest(row);
    const auto shifted = [highest](Reals x) { return x - highest; };
    const double total = sum(row, shifted);
    for (std::size_t first = 0; first < size; first += width) {
      const double* const part = row[first / row.length];
      const Reals p = exponential(shifted(Lanes::reals(part + first % row.length))) / total;
      const std::size_t left = size - first;
      std::memcpy(out + first, &p, sizeof(double) * (left < width ? left : width));
    }
  }

  static void exponentials(const double* x, std::size_t count, double* out) {
    for (std::size_t first = 0; first < count; first += width) {
      const std::size_t left = count - first, some = left < width ? left : width;
      double numbers[width] = {};
      std::memcpy(numbers, x + first, sizeof(double) * some);
      const Reals made = exponential(Lanes::reals(numbers));
      std::memcpy(out + first, &made, sizeof(double) * some);
    }
  }
};

}  // namespace
}  // namespace noise
}  // namespace forerun
