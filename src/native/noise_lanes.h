// The noise over the lanes of one instruction set: included by noise*.cpp only.
//
// `Lanes` says how wide a register is and how it multiplies; all else is written once. Every lane
// does core/noise.py's own IEEE operations in their order, so that all sets give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "noise.h"

namespace forerun {

// What one instruction set does; `noise.cpp` chooses.
struct NoiseKernels {
  void (*make)(const NoiseAddress&, std::size_t vocab_size, double* noise);
  void (*at)(const NoiseAddress&, const std::uint32_t* tokens, std::size_t count, double* noise);
  std::size_t (*draw)(const NoiseAddress&, const double* scores, std::size_t vocab_size);
  std::size_t (*rank)(const NoiseAddress&, const float* logits, const std::uint32_t* tokens,
                      std::size_t count, double temperature, std::size_t most, Ranked* best);
  void (*of_words)(const std::uint32_t* high, const std::uint32_t* low, std::size_t count,
                   double* noise);
};

extern const NoiseKernels portable_noise;
#ifdef FORERUN_X86
extern const NoiseKernels avx2_noise;
extern const NoiseKernels avx512_noise;
#endif

// Of each including file alone: a function compiled for wide registers must never be the linker's
// choice for a machine without them.
namespace noise {
namespace {

constexpr std::uint32_t domain_high = 0;
constexpr std::uint32_t domain_low = 1;

template <class To, class From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Integers below 2^52 as doubles, exactly: as the mantissa of 2^52.
constexpr std::uint64_t mantissa_base = 0x4330000000000000;
constexpr double two_52 = 0x1p52;

// One lane, of whatever the machine.
struct Scalar {
  using Words = std::uint64_t;
  using Reals = double;
  using Floats = float;
  static constexpr std::size_t width = 1;

  static Words counting_from(std::uint64_t first) { return first; }
  // The product of the lower halves.
  static Words multiply(Words a, std::uint32_t b) { return (a & 0xFFFFFFFFu) * b; }
  // Words in the order of tokens: the four of the first lane's block, then the next lane's.
  static void store(const Words (&word)[4], std::uint32_t* token) {
    for (int i = 0; i < 4; ++i) token[i] = static_cast<std::uint32_t>(word[i]);
  }
  static Words load(const std::uint32_t* token) { return *token; }
  // The next `width` numbers as doubles.
  static Reals reals(const float* x) { return static_cast<double>(*x); }
  static Reals reals(const double* x) { return *x; }
  // A whole register of numbers as they are.
  static Floats whole(const float* x) { return *x; }
  static Reals whole(const double* x) { return *x; }
  // The larger one, `b` if one of them is NaN.
  static Floats larger(Floats a, Floats b) { return a > b ? a : b; }
  static Reals larger(Reals a, Reals b) { return a > b ? a : b; }
  // The smaller one, and the smallest lane, of words below 2^32.
  static Words smaller(Words a, Words b) { return a < b ? a : b; }
  static std::uint32_t smallest(Words x) { return static_cast<std::uint32_t>(x); }
  // The largest lane; none is NaN.
  static float largest(Floats x) { return x; }
  static double largest(Reals x) { return x; }
  // Whether a lane is as large.
  static bool reaches(Reals x, double limit) { return x >= limit; }
  // table[index mod 16] in each lane.
  static Reals pick(const double (&table)[16], Words index) { return table[index & 15]; }
};

// Philox-4x32-10 and the logarithms of one set of lanes. `Words` are 64-bit lanes with a 32-bit
// word each; the upper halves of products stay above it, since `multiply` looks at lower halves
// only, until `low_half` takes them off. `Reals` are as many doubles.
template <class Lanes>
struct Maker {
  using Words = typename Lanes::Words;
  using Reals = typename Lanes::Reals;
  static constexpr std::size_t width = Lanes::width;
  static constexpr std::size_t tokens = 4 * width;

  struct Block {
    Words word[4];
  };

  // What is the same for all blocks of an address.
  struct Place {
    Words position, sample;
    Words key[10][2];  // each round's

    explicit Place(const NoiseAddress& at)
        : position(Words{} + at.position), sample(Words{} + at.sample) {
      std::uint32_t k0 = static_cast<std::uint32_t>(at.seed);
      std::uint32_t k1 = static_cast<std::uint32_t>(at.seed >> 32);
      for (auto& round : key) {
        round[0] = Words{} + k0;
        round[1] = Words{} + k1;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
      }
    }
  };

  static Words low_half(Words x) { return x & 0xFFFFFFFFu; }

  // Blocks first, first + 1, ... of the address, one a lane.
  static inline Block philox(const Place& at, std::uint64_t first, std::uint32_t domain) {
    return philox_of(at, Lanes::counting_from(first), domain);
  }

  // Any blocks of the address, one a lane.
  static inline Block philox_of(const Place& at, Words blocks, std::uint32_t domain) {
    Words c0 = blocks, c1 = at.position, c2 = at.sample, c3 = Words{} + domain;
    for (const auto& key : at.key) {
      const Words left = Lanes::multiply(c0, 0xD2511F53u);
      const Words right = Lanes::multiply(c2, 0xCD9E8D57u);
      c0 = (right >> 32) ^ c1 ^ key[0];
      c1 = right;
      c2 = (left >> 32) ^ c3 ^ key[1];
      c3 = left;
    }
    return {{low_half(c0), low_half(c1), low_half(c2), low_half(c3)}};
  }

  // log(x) for positive normal x: see `logarithm` in core/noise.py, whose operations these are.
  static inline Reals logarithm(Reals x) {
    const Words bits = bits_as<Words>(x);
    const Words fraction = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u;
    const Reals mantissa = bits_as<Reals>(fraction);
    const auto small = mantissa < 0x1.6a09e667f3bcdp-1;  // sqrt(1/2)
    const Reals f = (small ? mantissa * 2.0 : mantissa) - 1.0;
    const Words biased = (bits >> 52) | mantissa_base;
    const Reals exponent = bits_as<Reals>(biased) - (two_52 + 1022.0);
    const Reals k = small ? exponent - 1.0 : exponent;
    const Reals s = f / (2.0 + f);
    const Reals z = s * s;
    Reals series = Reals{} + 1.479819860511658591e-01;
    series = series * z + 1.531383769920937332e-01;
    series = series * z + 1.818357216161805012e-01;
    series = series * z + 2.222219843214978396e-01;
    series = series * z + 2.857142874366239149e-01;
    series = series * z + 3.999999999940941908e-01;
    series = series * z + 6.666666666666735130e-01;
    const Reals half = 0.5 * f * f;
    const Reals rest = s * (half + series * z) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-01 - ((half - rest) - f);
  }

  // -log(-log(1 - u)) for u = the two words as an odd multiple of 2^-53. So 1 - u is exact, and
  // the correction that core/noise.py makes for other u is a multiplication by 1.
  static inline Reals gumbel(Words high, Words low) {
    const Words n = (((high << 32) | low) >> 12) | mantissa_base;
    const Reals u = ((bits_as<Reals>(n) - two_52) + 0.5) * 0x1p-52;
    return -logarithm(-logarithm(1.0 - u));
  }

  static void make(const NoiseAddress& address, std::size_t vocab_size, double* noise) {
    const Place at(address);
    for (std::size_t start = 0; start < vocab_size; start += tokens) {
      std::uint32_t high[tokens], low[tokens];
      Lanes::store(philox(at, start / 4, domain_high).word, high);
      Lanes::store(philox(at, start / 4, domain_low).word, low);
      const std::size_t left = vocab_size - start;
      of_group(high, low, left < tokens ? left : tokens, noise + start);
    }
  }

  // The noise of tokens that may stand far apart: a block for each of them.
  static void at(const NoiseAddress& address, const std::uint32_t* chosen, std::size_t count,
                 double* noise) {
    const Place place(address);
    for (std::size_t start = 0; start < count; start += tokens) {
      const std::size_t some = count - start < tokens ? count - start : tokens;
      std::uint32_t high[tokens] = {}, low[tokens] = {};
      for (std::size_t i = 0; i < some; i += width) {
        std::uint32_t blocks[width] = {}, highs[tokens], lows[tokens];
        const std::size_t lanes = some - i < width ? some - i : width;
        const std::uint32_t* const these = chosen + start + i;
        for (std::size_t lane = 0; lane < lanes; ++lane) blocks[lane] = these[lane] / 4;
        const Words at_once = Lanes::load(blocks);
        Lanes::store(philox_of(place, at_once, domain_high).word, highs);
        Lanes::store(philox_of(place, at_once, domain_low).word, lows);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          high[i + lane] = highs[4 * lane + these[lane] % 4];
          low[i + lane] = lows[4 * lane + these[lane] % 4];
        }
      }
      of_group(high, low, some, noise + start);
    }
  }

  static void of_words(const std::uint32_t* high, const std::uint32_t* low, std::size_t count,
                       double* noise) {
    for (std::size_t start = 0; start < count; start += tokens) {
      const std::size_t some = count - start < tokens ? count - start : tokens;
      std::uint32_t highs[tokens] = {}, lows[tokens] = {};
      std::memcpy(highs, high + start, sizeof(std::uint32_t) * some);
      std::memcpy(lows, low + start, sizeof(std::uint32_t) * some);
      of_group(highs, lows, some, noise + start);
    }
  }

  // The noise of a whole group of tokens, of which the first `count` are written.
  static inline void of_group(const std::uint32_t* high, const std::uint32_t* low,
                              std::size_t count, double* noise) {
    Reals made[4];
    for (std::size_t i = 0; i < 4; ++i) {
      made[i] = gumbel(Lanes::load(high + i * width), Lanes::load(low + i * width));
    }
    std::memcpy(noise, made, sizeof(double) * count);
  }
};

}  // namespace
}  // namespace noise

}  // namespace forerun
