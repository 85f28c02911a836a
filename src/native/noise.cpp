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
  kernels().at(address, tokens, count, noise);
}

std::size_t draw_token(const NoiseAddress& address, const double* scores, std::size_t vocab_size) {
  return kernels().draw(address, scores, vocab_size);
}

std::size_t rank_tokens(const NoiseAddress& address, const float* logits,
                        const std::uint32_t* tokens, std::size_t count, double temperature,
                        std::size_t most, Ranked* best) {
  return most == 0 ? 0 : kernels().rank(address, logits, tokens, count, temperature, most, best);
}

void noise_of_words(const std::uint32_t* high, const std::uint32_t* low, std::size_t count,
                    double* noise) {
  kernels().of_words(high, low, count, noise);
}

double noise_bound(std::uint32_t high) { return noise::bound_of(high); }

}  // namespace forerun
