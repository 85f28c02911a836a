// Weights, sequences and the pass, for Python.

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "pass.h"
#include "python_lock.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {
namespace {

template <typename T, std::size_t axes>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<axes>, nb::c_contig, nb::device::cpu>;

using Bytes = Array<const std::uint8_t, 1>;
using Floats = Array<const float, 1>;
using Rows = Array<const float, 2>;
using Result = Array<float, 2>;

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

std::shared_ptr<EndWeights> make_ends(const Vectors& vectors, const Parts& parts) {
  EndWeights ends{product(parts, "embedding"), vector(vectors, "norm"), std::nullopt};
  if (parts.count("head") != 0) ends.own_head.emplace(product(parts, "head"));
  return std::make_shared<EndWeights>(std::move(ends));
}

// A tied embedding is the head, and read as a whole.
std::size_t embedding_row_bytes(const EndWeights& ends) {
  return ends.own_head ? ends.embedding.bytes() / ends.embedding.outputs() : 0;
}

std::size_t kv_bytes_per_token(const Pass& pass) {
  const KVShape shape = pass.kv_shape();
  return shape.layers * shape.kv_heads * KVPage::head_bytes(shape) / page_positions;
}

void check_shape(const Result& result, std::size_t rows, std::size_t columns) {
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

void score(Pass& pass, std::vector<std::shared_ptr<KVSequence>> sequences,
           std::vector<int> sequence_of, std::vector<int> tokens, std::vector<int> parents,
           std::vector<int> positions, std::pair<Rows, Rows> turns, std::vector<int> asked,
           Result logits, std::vector<int> layers, std::vector<Result> hidden,
           std::shared_ptr<Product> head) {
  const Shape& shape = pass.network().shape;
  const std::size_t rows = tokens.size(), table = turns.first.shape(0);
  for (const Rows& part : {turns.first, turns.second}) {
    if (part.shape(0) != table || part.shape(1) != shape.pairs) {
      throw nb::value_error("turns of a wrong shape");
    }
  }
  check_shape(logits, asked.size(), head ? head->outputs() : shape.vocab);
  Batch batch{{}, std::move(sequence_of), std::move(tokens), std::move(parents),
              std::move(positions), turns.first.data(), turns.second.data(), table,
              std::move(asked), logits.data(),
              std::move(layers), {}, head.get(), SignalCheck()};
  for (const auto& sequence : sequences) batch.sequences.push_back(sequence.get());
  if (std::set<KVSequence*>(batch.sequences.begin(), batch.sequences.end()).size() !=
      batch.sequences.size()) {
    throw nb::value_error("a sequence twice");
  }
  for (Result& states : hidden) {
    check_shape(states, rows, shape.width);
    batch.hidden.push_back(states.data());
  }
  bool is_whole;
  {
    const Released released;
    is_whole = pass.score(batch);
  }
  if (!is_whole) throw nb::python_error();
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
      .def(nb::new_(&make_ends), "vectors"_a, "products"_a)
      .def_prop_ro("nbytes", &EndWeights::bytes)
      .def_prop_ro("row_nbytes", &embedding_row_bytes,
                   "What a row of a pass reads besides: its line of an embedding of its own.");
  nb::class_<Product>(m, "Head", "The head's rows for some tokens, packed.")
      .def(nb::new_([](const std::vector<Part>& parts) {
             return std::make_shared<Product>(product(parts));
           }),
           "parts"_a)
      .def_prop_ro("nbytes", &Product::bytes);
  nb::class_<KVSequence>(m, "KVSequence", "Keys and values of one sequence.")
      .def_prop_ro("length", &KVSequence::length)
      .def("commit", &KVSequence::commit, "path"_a)
      .def("rollback", &KVSequence::rollback, "length"_a)
      .def("fork", &fork);
  nb::class_<Pass>(m, "Pass", "Scores rows of many sequences; one call at a time.")
      .def(
          "__init__",
          [](Pass* pass, const Shape& shape, std::vector<std::shared_ptr<LayerWeights>> layers,
             std::shared_ptr<EndWeights> ends, std::size_t kv_bits, std::size_t threads) {
            new (pass) Pass(Network{shape, {layers.begin(), layers.end()}, ends},
                            kv_type(kv_bits), threads);
          },
          "shape"_a, "layers"_a, "ends"_a, "kv_bits"_a, "threads"_a)
      .def_prop_ro("threads", &Pass::threads)
      .def_prop_ro("kv_bytes_per_token", &kv_bytes_per_token,
                   "Keys and values that a pass reads for each token of a sequence.")
      .def("open", [](const Pass& pass) { return std::make_shared<KVSequence>(pass.kv_shape()); })
      .def("score", &score, "sequences"_a, "sequence_of"_a, "tokens"_a, "parents"_a,
           "positions"_a, "turns"_a,
           "asked"_a, "logits"_a, "layers"_a, "hidden"_a, "head"_a = nb::none());
}

}  // namespace forerun
