// Weights, sequences and the pass, for Python.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "pass.h"
#include "pass_reader.h"
#include "python_lock.h"
#include "shared_threads.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {
namespace {

template <typename T, std::size_t axes>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<axes>, nb::c_contig, nb::device::cpu>;

using Bytes = Array<const std::uint8_t, 1>;
using Floats = Array<const float, 1>;
using Rows = Array<const float, 2>;
using States = Array<float, 2>;
using Room = Array<float, 1>;

// Type as GGML names it, stored bytes, outputs, inputs.
using Part = std::tuple<std::string, Bytes, std::size_t, std::size_t>;
using Parts = std::map<std::string, std::vector<Part>>;
using Vectors = std::map<std::string, Floats>;

Matrix packed_part(const Part& part) {
  const auto& [name, bytes, outputs, inputs] = part;
  const TensorType type = type_called(name);
  const std::size_t row = stored_row_bytes(type, inputs);
  if (row == 0 || bytes.size() % row != 0 || bytes.size() / row != outputs) {
    throw nb::value_error("a matrix of another size than its bytes");
  }
  const std::uint8_t* const data = bytes.data();
  const Released released;
  return Matrix(type, data, outputs, inputs);
}

Product product(const std::vector<Part>& parts) {
  std::vector<Matrix> matrices;
  for (const Part& part : parts) matrices.push_back(packed_part(part));
  return Product(std::move(matrices));
}

Product product(const Parts& parts, const char* name) { return product(parts.at(name)); }

std::vector<float> vector(const Vectors& vectors, const char* name) {
  const auto found = vectors.find(name);
  if (found == vectors.end()) return {};
  return {found->second.data(), found->second.data() + found->second.size()};
}

std::shared_ptr<LayerWeights> make_layer(const Vectors& vectors, const Parts& parts,
                                         bool turns) {
  return std::make_shared<LayerWeights>(LayerWeights{
      vector(vectors, "attention_norm"), product(parts, "qkv"), vector(vectors, "qkv_bias"),
      vector(vectors, "q_norm"), vector(vectors, "k_norm"), product(parts, "output"),
      vector(vectors, "inner_norm"), product(parts, "gate_up"), product(parts, "down"),
      turns});
}

// The embedding is one of `parts`, or another's that is shared.
std::shared_ptr<EndWeights> make_ends(const Vectors& vectors, const Parts& parts,
                                      const EndWeights* shared) {
  EndWeights ends{shared != nullptr ? shared->embedding
                                    : std::make_shared<Product>(product(parts, "embedding")),
                  vector(vectors, "norm"), std::nullopt};
  if (parts.count("head") != 0) ends.own_head.emplace(product(parts, "head"));
  return std::make_shared<EndWeights>(std::move(ends));
}

std::shared_ptr<EntryWeights> make_entry(const Vectors& vectors, const Parts& parts) {
  return std::make_shared<EntryWeights>(
      EntryWeights{product(parts, "features"), vector(vectors, "token_norm")});
}

// A tied embedding is the head, and read as a whole.
std::size_t embedding_row_bytes(const EndWeights& ends) {
  return ends.own_head ? ends.embedding->bytes() / ends.embedding->outputs() : 0;
}

std::size_t kv_bytes_per_token(const Pass& pass) {
  const KVShape shape = pass.kv_shape();
  return shape.layers * shape.kv_heads * KVPage::head_bytes(shape) / page_positions;
}

void check_shape(const States& result, std::size_t rows, std::size_t columns) {
  if (result.shape(0) != rows || result.shape(1) != columns) {
    throw nb::value_error("a result of a wrong shape");
  }
}

// Lets Python handle signals, such as Ctrl-C, now and then; true if a handler raised.
class SignalCheck {
 public:
  bool operator()() {
    const auto now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(20)) return false;
    last_ = now;
    const Acquired acquired;
    return PyErr_CheckSignals() != 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

// Turns of all positions up to the last one that is read, and some more.
void demand_turns(Pass& pass, const std::vector<int>& positions, const nb::callable& turns) {
  const auto last = std::max_element(positions.begin(), positions.end());
  if (last == positions.end() || static_cast<std::size_t>(*last) < pass.turned()) return;
  const auto [cosines, sines] = nb::cast<std::pair<Rows, Rows>>(turns(*last));
  for (const Rows& part : {cosines, sines}) {
    if (part.shape(0) != cosines.shape(0) || part.shape(1) != pass.network().shape.pairs) {
      throw nb::value_error("turns of a wrong shape");
    }
  }
  pass.set_turns(cosines.data(), sines.data(), cosines.shape(0));
}

// Room for `count` floats from the first cache line on: threads then write to none together.
std::size_t first_line(const Room& room, std::size_t count) {
  const std::size_t floats = cache_line / sizeof(float);
  const std::size_t start = reinterpret_cast<std::uintptr_t>(room.data()) / sizeof(float) % floats;
  const std::size_t skipped = (floats - start) % floats;
  if (room.size() < skipped + count) throw nb::value_error("too little room");
  return skipped;
}

// Of a head's rows the first have features, the others are given what an earlier row has come to.
void read_known(const Pass& pass, const std::optional<Rows>& features,
                const std::optional<Rows>& given, Batch& batch) {
  const std::size_t rows = batch.tokens.size();
  const Network& network = pass.network();
  batch.featured = features ? features->shape(0) : 0;
  const std::size_t others = given ? given->shape(0) : 0;
  if (batch.featured > rows || others != rows - batch.featured ||
      (features && features->shape(1) != network.entry->features.inputs()) ||
      (given && given->shape(1) != network.shape.width)) {
    throw nb::value_error("what is known has a wrong shape");
  }
  if (features) batch.features = features->data();
  if (given) batch.given = given->data();
}

// Where in `room` the logits begin, or nothing if the rows, or what is asked of them, can't be.
std::optional<std::size_t> score(Pass& pass, const nb::object& rows, const nb::dict& sequences,
                                 std::size_t context, const nb::callable& turns,
                                 const nb::object& asked, const Room& room,
                                 const nb::object& layers, const std::vector<States>& hidden,
                                 std::shared_ptr<Product> head, const nb::object& until,
                                 const std::optional<Rows>& features,
                                 const std::optional<Rows>& given) {
  wake_shared(pass.threads());
  const Shape& shape = pass.network().shape;
  PassReader reader(pass, sequences, context);
  if (!reader.read_rows(rows) || !reader.read_asked(asked) || !reader.read_until(until) ||
      !reader.read_layers(layers)) {
    return std::nullopt;
  }
  Batch& batch = reader.batch;
  const std::set<KVSequence*> distinct(batch.sequences.begin(), batch.sequences.end());
  if (distinct.size() != batch.sequences.size()) throw nb::value_error("a sequence twice");
  demand_turns(pass, batch.positions, turns);
  const std::size_t outputs = (head ? *head : pass.network().ends->head()).outputs();
  const std::size_t start = first_line(room, batch.asked.size() * outputs);
  batch.logits = room.data() + start;
  for (const States& states : hidden) {
    check_shape(states, batch.tokens.size(), shape.width);
    batch.hidden.push_back(states.data());
  }
  batch.head = head.get();
  if (pass.network().entry != nullptr) read_known(pass, features, given, batch);
  batch.is_over = SignalCheck();
  bool is_whole;
  {
    const Released released;
    is_whole = pass.score(batch);
  }
  if (!is_whole) throw nb::python_error();
  return start;
}

KVType kv_type(std::size_t bits) {
  if (bits == 16) return KVType::words;
  if (bits == 32) return KVType::floats;
  throw nb::value_error("keys and values have 16 or 32 bits");
}

std::shared_ptr<KVSequence> fork(const KVSequence& sequence) {
  return std::make_shared<KVSequence>(sequence);
}

}  // namespace

void bind_pass(nb::module_& m) {
  nb::class_<Shape>(m, "Shape", "The numbers of a network.")
      .def(
          "__init__",
          [](Shape* shape, std::size_t vocab, std::size_t width, std::size_t heads,
             std::size_t kv_heads, std::size_t head_dim, std::size_t inner, std::size_t pairs,
             bool is_interleaved, float epsilon) {
            new (shape) Shape{vocab, width, heads, kv_heads, head_dim,
                              inner, pairs, is_interleaved, epsilon};
          },
          nb::kw_only(), "vocab"_a, "width"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "inner"_a,
          "pairs"_a, "is_interleaved"_a, "epsilon"_a);
  nb::class_<LayerWeights>(m, "LayerWeights", nb::is_weak_referenceable(), "One layer, packed.")
      .def(nb::new_(&make_layer), "vectors"_a, "products"_a, "turns"_a = true)
      .def_prop_ro("nbytes", &LayerWeights::bytes);
  nb::class_<EndWeights>(m, "EndWeights", nb::is_weak_referenceable(),
                         "Embedding, final norm and head, packed.")
      .def(nb::new_(&make_ends), "vectors"_a, "products"_a, "shared"_a = nb::none(),
           "`shared` has the embedding, if it is not among the products.")
      .def_prop_ro("nbytes", &EndWeights::bytes)
      .def_prop_ro("row_nbytes", &embedding_row_bytes,
                   "What a row of a pass reads besides: its line of an embedding of its own.");
  nb::class_<EntryWeights>(m, "EntryWeights", "How rows enter a head, packed.")
      .def(nb::new_(&make_entry), "vectors"_a, "products"_a)
      .def_prop_ro("nbytes", &EntryWeights::bytes);
  nb::class_<Product>(m, "Head", "The head's rows for some tokens, packed.")
      .def(nb::new_([](const std::vector<Part>& parts) {
             return std::make_shared<Product>(product(parts));
           }),
           "parts"_a)
      .def_prop_ro("nbytes", &Product::bytes);
  nb::class_<KVSequence>(m, "KVSequence", "Keys and values of one sequence.")
      .def_prop_ro("length", &KVSequence::length)
      .def("commit", &KVSequence::commit, "path"_a, "Rows of the last pass, first to last.")
      .def("rollback", &KVSequence::rollback, "length"_a)
      .def("fork", &fork);
  nb::class_<Pass>(m, "Pass", "Scores rows of many sequences; one call at a time.")
      .def(
          "__init__",
          [](Pass* pass, const Shape& shape, std::vector<std::shared_ptr<LayerWeights>> layers,
             std::shared_ptr<EndWeights> ends, std::size_t kv_bits, std::size_t threads,
             std::shared_ptr<EntryWeights> entry) {
            new (pass) Pass(Network{shape, {layers.begin(), layers.end()}, ends, entry},
                            kv_type(kv_bits), threads);
          },
          "shape"_a, "layers"_a, "ends"_a, "kv_bits"_a, "threads"_a, "entry"_a = nb::none())
      .def_prop_ro("threads", &Pass::threads)
      .def_prop_ro("kv_bytes_per_token", &kv_bytes_per_token,
                   "Keys and values that a pass reads for each token of a sequence.")
      .def("open", [](const Pass& pass) { return std::make_shared<KVSequence>(pass.kv_shape()); })
      .def("score", &score, "rows"_a, "sequences"_a, "context"_a, "turns"_a, "asked"_a.none(),
           "room"_a, "layers"_a, "hidden"_a, "head"_a = nb::none(), "until"_a = nb::none(),
           "features"_a = nb::none(), "given"_a = nb::none(),
           "Where in `room` the logits begin; None if the rows or what is asked can't be.");
}

}  // namespace forerun
