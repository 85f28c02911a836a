// Gumbel noise with an address, and the draw that it decides: the compiled twins of core/noise.py
// and of argmax(scores + noise). The same bits as there, on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forerun {

// Where a row of noise stands. Token x has word x mod 4 of the Philox block of counter
// (x / 4, position, sample, domain) under the seed's two halves as the key.
struct NoiseAddress {
  std::uint64_t seed;
  std::uint32_t sample;
  std::uint32_t position;
};

// noise[x] = g(address, x) for all tokens x < vocab_size.
void make_noise(const NoiseAddress& address, std::size_t vocab_size, double* noise);

// noise[i] = g(address, tokens[i]).
void noise_at(const NoiseAddress& address, const std::uint32_t* tokens, std::size_t count,
              double* noise);

// argmax(scores + g), ties to the lowest token, a NaN before all (as numpy's argmax has it).
// vocab_size is at least 1.
std::size_t draw_token(const NoiseAddress& address, const double* scores, std::size_t vocab_size);

// One of some tokens, by its place among them.
struct Ranked {
  std::size_t place;
  double score;
};

// The `most` highest of (logits[i] - the highest of them) / temperature + g(address, tokens[i]), the
// best first, of equals the lower place; -inf and NaN are never among them. Returns how many there
// are. The temperature is above 0.
std::size_t rank_tokens(const NoiseAddress& address, const float* logits,
                        const std::uint32_t* tokens, std::size_t count, double temperature,
                        std::size_t most, Ranked* best);

// The parts, for the tests. The noise of `count` tokens by their two words, which no address would
// bring together at the extremes; and at least the noise of every token with this high word.
void noise_of_words(const std::uint32_t* high, const std::uint32_t* low, std::size_t count,
                    double* noise);
double noise_bound(std::uint32_t high);

}  // namespace forerun
