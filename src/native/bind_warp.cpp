// The warp, the token it chooses and the logarithms of laws, for Python.

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "python_lock.h"
#include "row_threads.h"
#include "warp.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {

namespace {

using Numbers = nb::ndarray<nb::numpy, double, nb::ndim<1>>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Numbers owned(std::unique_ptr<double[]> row, std::size_t size) {
  double* const data = row.get();
  nb::capsule owner(row.release(), [](void* p) noexcept { delete[] static_cast<double*>(p); });
  return Numbers(data, {size}, owner);
}

TextSoFar text_of(const Ids& prompt, const nb::dict& counts, bool bans_stops) {
  TextSoFar text{prompt.data(), prompt.shape(0), {}, bans_stops};
  text.counts.reserve(counts.size());
  for (const auto& [token, times] : counts) {
    text.counts.emplace_back(nb::cast<std::uint32_t>(token), nb::cast<double>(times));
  }
  return text;
}

void check(const Warp& warp, const Logits& logits) {
  if (logits.shape(0) != warp.vocab_size()) throw std::invalid_argument("a row of a wrong size");
}

// A row, the text before the token that it chooses (counts, whether stops are banned), the token's
// position, and what it is guessed to be.
using Place = std::tuple<std::size_t, nb::dict, bool, std::uint32_t, std::int64_t>;

using Tokens = std::vector<std::optional<std::size_t>>;
using Normalisers = std::vector<std::pair<double, double>>;

struct Asked {
  const float* row;
  TextSoFar text;
  NoiseAddress at;
  std::int64_t guess;
  Chosen chosen{};
  bool is_chosen = false;
};

std::vector<Asked> asked_of(const Warp& warp, const Rows& logits, const std::vector<Place>& places,
                            const Ids& prompt, std::uint64_t seed, std::uint32_t sample) {
  const std::size_t size = warp.vocab_size();
  if (logits.shape(1) != size) throw std::invalid_argument("rows of a wrong size");
  std::vector<Asked> asked;
  asked.reserve(places.size());
  for (const auto& [row, counts, bans_stops, position, guess] : places) {
    if (row >= logits.shape(0)) throw std::invalid_argument("a row that is not there");
    asked.push_back({logits.data() + row * size, text_of(prompt, counts, bans_stops),
                     {seed, sample, position}, guess});
  }
  return asked;
}

// Chooses at as many places together as there are threads, up to the first guess that fails;
// returns how many places that are.
std::size_t choose_along(const Warp& warp, std::vector<Asked>& asked, std::size_t threads) {
  std::size_t known = 0;
  while (known < asked.size()) {
    const std::size_t last = std::min(known + std::max<std::size_t>(threads, 1), asked.size());
    for_rows(last - known, threads, [&](std::size_t i) {
      Asked& one = asked[known + i];
      one.is_chosen = warp.choose(one.row, one.text, one.at, one.chosen) == RowState::sound;
    });
    for (; known < last; ++known) {
      const Asked& one = asked[known];
      if (!one.is_chosen) return known;
      if (static_cast<std::int64_t>(one.chosen.token) != one.guess) return known + 1;
    }
  }
  return known;
}

// A single place: one thread draws while another adds up.
LogNormaliser choose_alone(const Warp& warp, Asked& one, std::size_t threads) {
  LogNormaliser normaliser{};
  for_rows(2, threads, [&](std::size_t i) {
    if (i == 0) {
      one.is_chosen = warp.choose(one.row, one.text, one.at, one.chosen) == RowState::sound;
    } else {
      normaliser = log_normaliser(one.row, warp.vocab_size());
    }
  });
  return normaliser;
}

// The normalisers of the first `count` rows. Chunks are shared out from left to right, as columns
// are in the pass: a thread reads what it has written.
Normalisers normalisers_of(const std::vector<Asked>& asked, std::size_t count, std::size_t size,
                           std::size_t threads) {
  if (count == 0) return {};
  std::vector<ChunkedSum> sums;
  for (std::size_t i = 0; i < count; ++i) {
    sums.emplace_back(asked[i].row, size, asked[i].chosen.highest);
  }
  for_rows(count * sums[0].chunks(), threads,
           [&](std::size_t i) { sums[i % count].add(i / count); });
  Normalisers found;
  for (const ChunkedSum& sum : sums) {
    const LogNormaliser one = sum.normaliser();
    found.emplace_back(one.highest, one.log_sum);
  }
  return found;
}

std::pair<Tokens, Normalisers> choose(const Warp& warp, const Rows& logits,
                                      const std::vector<Place>& places, const Ids& prompt,
                                      std::uint64_t seed, std::uint32_t sample, bool normalises,
                                      std::size_t threads) {
  std::vector<Asked> asked = asked_of(warp, logits, places, prompt, seed, sample);
  std::pair<Tokens, Normalisers> found;
  const Released released;
  if (normalises && asked.size() == 1 && !warp.is_greedy()) {
    const LogNormaliser one = choose_alone(warp, asked[0], threads);
    if (asked[0].is_chosen) found.second.emplace_back(one.highest, one.log_sum);
  } else {
    const std::size_t known = choose_along(warp, asked, threads);
    if (normalises) found.second = normalisers_of(asked, known, warp.vocab_size(), threads);
  }
  for (const Asked& one : asked) {
    found.first.push_back(one.is_chosen ? std::optional(one.chosen.token) : std::nullopt);
  }
  return found;
}

std::optional<Numbers> scores(const Warp& warp, const Logits& logits, const Ids& prompt,
                              const nb::dict& counts, bool bans_stops) {
  check(warp, logits);
  auto row = std::make_unique<double[]>(warp.vocab_size());
  const TextSoFar text = text_of(prompt, counts, bans_stops);
  if (warp.score(logits.data(), text, row.get()) != RowState::sound) return std::nullopt;
  return owned(std::move(row), warp.vocab_size());
}

template <class Make>
Numbers made(const Doubles& x, Make make) {
  auto row = std::make_unique<double[]>(x.shape(0));
  make(x.data(), x.shape(0), row.get());
  return owned(std::move(row), x.shape(0));
}

// Of the rows `asked` of logits[rows][vocab].
Normalisers log_normalisers(const Rows& logits, const std::vector<std::size_t>& asked,
                            std::size_t threads) {
  const std::size_t size = logits.shape(1);
  if (size == 0) throw std::invalid_argument("no vocabulary");
  for (const std::size_t row : asked) {
    if (row >= logits.shape(0)) throw std::invalid_argument("a row that is not there");
  }
  Normalisers found(asked.size());
  const Released released;
  for_rows(asked.size(), threads, [&](std::size_t i) {
    const LogNormaliser one = log_normaliser(logits.data() + asked[i] * size, size);
    found[i] = {one.highest, one.log_sum};
  });
  return found;
}

void make_warp(Warp* warp, std::size_t vocab_size, double temperature, std::size_t top_k,
               double top_p, double least_score, const std::vector<double>& penalties,
               const std::optional<Doubles>& shift, std::vector<std::size_t> stops) {
  WarpSettings settings{temperature,     top_k,           top_p,           least_score,
                        penalties.at(0), penalties.at(1), penalties.at(2), {},
                        std::move(stops)};
  if (shift) settings.shift.assign(shift->data(), shift->data() + shift->shape(0));
  new (warp) Warp(std::move(settings), vocab_size);
}

}  // namespace

void bind_warp(nb::module_& m) {
  nb::class_<Warp>(m, "Warp", "The warp of one request; twin of core.warp.Warp.")
      .def("__init__", &make_warp, nb::kw_only(), "vocab_size"_a, "temperature"_a, "top_k"_a,
           "top_p"_a, "least_score"_a, "penalties"_a, "shift"_a.none(), "stops"_a)
      .def("choose", &choose, "logits"_a.noconvert(), "places"_a, "prompt"_a.noconvert(),
           "seed"_a, "sample"_a, "normalises"_a, "threads"_a,
           "The tokens that law and noise choose, up to the first that is not as guessed; None "
           "behind it, and where a row holds no law. And their rows' normalisers, if they are "
           "asked for: up to the same place.")
      .def("scores", &scores, "logits"_a.noconvert(), "prompt"_a.noconvert(), "counts"_a,
           "bans_stops"_a, "Warped log-weights, float64; None if the row holds no law.");
  m.def(
      "softmax", [](const Doubles& x) { return made(x, softmax); }, "scores"_a.noconvert(),
      "Probabilities of log-weights, float64, the highest of them finite.");
  m.def(
      "exponentials", [](const Doubles& x) { return made(x, exponentials); }, "x"_a.noconvert(),
      "exp(x) of numbers up to 0, float64: the bits of core.softmax.exponential.");
  m.def("log_normalisers", &log_normalisers, "logits"_a.noconvert(), "asked"_a, "threads"_a,
        "Of each row asked for: the largest logit, and the logarithm of the sum of "
        "exp(logit - largest).");
}

}  // namespace forerun
