#include "noise.h"

#include "instruction_set.h"
#include "noise_draw.h"

namespace forerun {

namespace {

const NoiseKernels& kernels() {
#ifdef FORERUN_X86
  switch (instruction_set()) {
    case InstructionSet::avx512: return avx512_noise;
    case InstructionSet::avx2: return avx2_noise;
    case InstructionSet::portable: break;
  }
#endif
  return portable_noise;
}

}  // namespace

void make_noise(const NoiseAddress& address, std::size_t vocab_size, double* noise) {
  kernels().make(address, vocab_size, noise);
}

void noise_at(const NoiseAddress& address, const std::uint32_t* tokens, std::size_t count,
              double* noise) {
  // One by one: tokens far apart share no blocks.
  using One = noise::Maker<noise::Scalar>;
  const One::Place at(address);
  for (std::size_t i = 0; i < count; ++i) {
    const auto high = One::philox(at, tokens[i] / 4, noise::domain_high);
    const auto low = One::philox(at, tokens[i] / 4, noise::domain_low);
    noise[i] = One::gumbel(high.word[tokens[i] % 4], low.word[tokens[i] % 4]);
  }
}

std::size_t draw_token(const NoiseAddress& address, const double* scores, std::size_t vocab_size) {
  return kernels().draw(address, scores, vocab_size);
}

void noise_of_words(const std::uint32_t* high, const std::uint32_t* low, std::size_t count,
                    double* noise) {
  kernels().of_words(high, low, count, noise);
}

double noise_bound(std::uint32_t high) { return noise::bound_of(high); }

}  // namespace forerun
