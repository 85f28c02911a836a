// The noise, the draw, and the choice of instructions, for Python.

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "instruction_set.h"
#include "noise.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {

namespace {

using Row = nb::ndarray<nb::numpy, double, nb::ndim<1>>;
using Scores = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Row owned(std::unique_ptr<double[]> row, std::size_t size) {
  double* const data = row.get();
  nb::capsule owner(row.release(), [](void* p) noexcept { delete[] static_cast<double*>(p); });
  return Row(data, {size}, owner);
}

Row noise_of(std::uint64_t seed, std::uint32_t sample, std::uint32_t position,
             std::size_t vocab_size) {
  auto noise = std::make_unique<double[]>(vocab_size);
  make_noise({seed, sample, position}, vocab_size, noise.get());
  return owned(std::move(noise), vocab_size);
}

std::vector<double> noise_of_tokens(std::uint64_t seed, std::uint32_t sample,
                                    std::uint32_t position,
                                    const std::vector<std::uint32_t>& tokens) {
  std::vector<double> noise(tokens.size());
  noise_at({seed, sample, position}, tokens.data(), tokens.size(), noise.data());
  return noise;
}

Row noise_among(std::uint64_t seed, std::uint32_t sample, std::uint32_t position,
                const Words& tokens) {
  auto noise = std::make_unique<double[]>(tokens.shape(0));
  noise_at({seed, sample, position}, tokens.data(), tokens.shape(0), noise.get());
  return owned(std::move(noise), tokens.shape(0));
}

// Places and scores.
std::vector<std::pair<std::size_t, double>> ranked_tokens(std::uint64_t seed, std::uint32_t sample,
                                                          std::uint32_t position,
                                                          const Logits& logits,
                                                          const Words& tokens, double temperature,
                                                          std::size_t most) {
  if (logits.shape(0) != tokens.shape(0)) throw std::invalid_argument("A logit for each token.");
  if (!(temperature > 0)) throw std::invalid_argument("The temperature must be above 0.");
  std::vector<Ranked> best(std::min(most, tokens.shape(0)));
  best.resize(rank_tokens({seed, sample, position}, logits.data(), tokens.data(), tokens.shape(0),
                          temperature, best.size(), best.data()));
  std::vector<std::pair<std::size_t, double>> found;
  for (const Ranked& one : best) found.emplace_back(one.place, one.score);
  return found;
}

std::size_t drawn_token(const Scores& scores, std::uint64_t seed, std::uint32_t sample,
                        std::uint32_t position) {
  if (scores.shape(0) == 0) throw std::invalid_argument("There are no scores to draw from.");
  return draw_token({seed, sample, position}, scores.data(), scores.shape(0));
}

Row noise_of_these(const Words& high, const Words& low) {
  if (high.shape(0) != low.shape(0)) throw std::invalid_argument("As many high as low words.");
  auto noise = std::make_unique<double[]>(high.shape(0));
  noise_of_words(high.data(), low.data(), high.shape(0), noise.get());
  return owned(std::move(noise), high.shape(0));
}

constexpr InstructionSet every_set[] = {InstructionSet::portable, InstructionSet::avx2,
                                        InstructionSet::avx512};

// Slowest first.
std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const InstructionSet set : every_set) {
    if (set <= best_instruction_set()) names.emplace_back(name_of(set));
  }
  return names;
}

void use_set_named(const std::string& name) {
  for (const InstructionSet set : every_set) {
    if (name == name_of(set)) return use_instruction_set(set);
  }
  throw std::invalid_argument("No instruction set is called " + name + ".");
}

}  // namespace

void bind_noise(nb::module_& m) {
  m.def("make_noise", &noise_of, "seed"_a, "sample"_a, "position"_a, "vocab_size"_a,
        "Gumbel noise of one place, float64 [vocab_size]: the bits of core/noise.py.");
  m.def("noise_at", &noise_of_tokens, "seed"_a, "sample"_a, "position"_a, "tokens"_a,
        "The noise of some tokens of one place.");
  m.def("noise_among", &noise_among, "seed"_a, "sample"_a, "position"_a, "tokens"_a.noconvert(),
        "The same of many tokens, uint32 [tokens]: float64 [tokens].");
  m.def("rank_tokens", &ranked_tokens, "seed"_a, "sample"_a, "position"_a, "logits"_a.noconvert(),
        "tokens"_a.noconvert(), "temperature"_a, "most"_a,
        "Places and scores of the highest (logit - highest) / temperature + noise.");
  m.def("draw_token", &drawn_token, "scores"_a.noconvert(), "seed"_a, "sample"_a, "position"_a,
        "argmax(scores + noise), ties to the lowest id; scores float64 [vocab_size].");
  m.def("noise_of_words", &noise_of_these, "high"_a.noconvert(), "low"_a.noconvert(),
        "The noise of tokens with these words, uint32 [tokens].");
  m.def("noise_bound", &noise_bound, "high"_a, "What no noise with this high word exceeds.");
  m.def("instruction_sets", &instruction_sets, "What this machine can use, the slowest first.");
  m.def("instruction_set", [] { return name_of(instruction_set()); }, "The one in use.");
  m.def("use_instruction_set", &use_set_named, "name"_a,
        "Use another one from now on: the same bits, at another speed.");
}

}  // namespace forerun
