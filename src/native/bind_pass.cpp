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

// The whole number, or `none` if it is not one of 64 bits. Throws TypeError if it is no number.
constexpr long long none = std::numeric_limits<long long>::min();

long long number(PyObject* object) {
  if (!PyLong_Check(object)) {
    const nb::object whole = nb::steal(PyNumber_Index(object));
    if (!whole.is_valid()) throw nb::python_error();
    return number(whole.ptr());
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow != 0 ? none : value;
}

// Reads the numbers of a pass from Python, and whether a target can score them: forerun.targets.
// checks says what is wrong if not.
class Reader {
 public:
  Reader(const Pass& pass, const nb::dict& open, std::size_t context)
      : pass_(pass), open_(open), context_(static_cast<long long>(context)) {}

  Batch batch;

  bool read_rows(const nb::object& rows) {
    const List list(rows);
    for (PyObject* const row : list) {
      if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 4) throw nb::type_error("no Row");
      if (!read_row(row)) return false;
    }
    return true;
  }

  // Indices of rows; None is all.
  bool read_asked(const nb::object& asked) {
    const std::size_t rows = batch.tokens.size();
    if (!asked.is_none()) return read_below(asked, rows, batch.asked);
    batch.asked.resize(rows);
    std::iota(batch.asked.begin(), batch.asked.end(), 0);
    return true;
  }

  // Of the layers only the first so many run; None is all.
  bool read_until(const nb::object& until) {
    if (until.is_none()) return true;
    const long long value = number(until.ptr());
    if (value < 1 || value > static_cast<long long>(pass_.network().layers.size())) return false;
    batch.until = static_cast<std::size_t>(value);
    return true;
  }

  bool read_layers(const nb::object& layers) {
    const std::size_t last = batch.until != 0 ? batch.until : pass_.network().layers.size();
    return read_below(layers, last + 1, batch.layers);
  }

 private:
  // Any sequence, as a list or tuple.
  class List {
   public:
    explicit List(const nb::object& sequence)
        : fast_(nb::steal(PySequence_Fast(sequence.ptr(), "no sequence"))) {
      if (!fast_.is_valid()) throw nb::python_error();
    }
    PyObject** begin() const { return PySequence_Fast_ITEMS(fast_.ptr()); }
    PyObject** end() const { return begin() + PySequence_Fast_GET_SIZE(fast_.ptr()); }

   private:
    nb::object fast_;
  };

  static bool read_below(const nb::object& numbers, std::size_t limit, std::vector<int>& to) {
    const List list(numbers);
    for (PyObject* const one : list) {
      const long long value = number(one);
      if (value < 0 || value >= static_cast<long long>(limit)) return false;
      to.push_back(static_cast<int>(value));
    }
    return true;
  }

  bool read_row(PyObject* row) {
    const int sequence = sequence_named(PyTuple_GET_ITEM(row, 0));
    const long long token = number(PyTuple_GET_ITEM(row, 1));
    const long long position = number(PyTuple_GET_ITEM(row, 2));
    const long long parent = number(PyTuple_GET_ITEM(row, 3));
    const auto vocab = static_cast<long long>(pass_.network().shape.vocab);
    if (sequence < 0 || token < 0 || token >= vocab || position >= context_) return false;
    if (position != expected(static_cast<std::size_t>(sequence), parent)) return false;
    batch.sequence_of.push_back(sequence);
    batch.tokens.push_back(static_cast<int>(token));
    batch.positions.push_back(static_cast<int>(position));
    batch.parents.push_back(static_cast<int>(parent));
    return true;
  }

  // Where a row must stand; -1 if it has a wrong parent.
  long long expected(std::size_t sequence, long long parent) const {
    if (parent == -1) return static_cast<long long>(batch.sequences[sequence]->length());
    if (parent < 0 || parent >= static_cast<long long>(batch.tokens.size())) return -1;
    const auto at = static_cast<std::size_t>(parent);
    if (batch.sequence_of[at] != static_cast<int>(sequence)) return -1;
    return batch.positions[at] + 1;
  }

  // Its place in the batch, which it gets if it is new; -1 if none of that name is open.
  int sequence_named(PyObject* name) {
    const long long value = number(name);
    const auto [found, is_new] = places_.try_emplace(value, static_cast<int>(places_.size()));
    if (!is_new) return found->second;
    PyObject* const sequence = PyDict_GetItemWithError(open_.ptr(), name);
    if (sequence == nullptr) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return -1;
    }
    kept_.push_back(nb::cast<std::shared_ptr<KVSequence>>(nb::handle(sequence)));
    batch.sequences.push_back(kept_.back().get());
    return found->second;
  }

  const Pass& pass_;
  const nb::dict& open_;
  const long long context_;
  std::map<long long, int> places_;
  std::vector<std::shared_ptr<KVSequence>> kept_;
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

// Where in `room` the logits begin, or nothing if the rows, or what is asked of them, can't be.
std::optional<std::size_t> score(Pass& pass, const nb::object& rows, const nb::dict& sequences,
                                 std::size_t context, const nb::callable& turns,
                                 const nb::object& asked, const Room& room,
                                 const nb::object& layers, const std::vector<States>& hidden,
                                 std::shared_ptr<Product> head, const nb::object& until) {
  wake_shared(pass.threads());
  const Shape& shape = pass.network().shape;
  Reader reader(pass, sequences, context);
  if (!reader.read_rows(rows) || !reader.read_asked(asked) || !reader.read_until(until) ||
      !reader.read_layers(layers)) {
    return std::nullopt;
  }
  Batch& batch = reader.batch;
  const std::set<KVSequence*> distinct(batch.sequences.begin(), batch.sequences.end());
  if (distinct.size() != batch.sequences.size()) throw nb::value_error("a sequence twice");
  demand_turns(pass, batch.positions, turns);
  const std::size_t outputs = head ? head->outputs() : shape.vocab;
  const std::size_t start = first_line(room, batch.asked.size() * outputs);
  batch.logits = room.data() + start;
  for (const States& states : hidden) {
    check_shape(states, batch.tokens.size(), shape.width);
    batch.hidden.push_back(states.data());
  }
  batch.head = head.get();
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
      .def("commit", &KVSequence::commit, "path"_a, "Rows of the last pass, first to last.")
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
      .def("score", &score, "rows"_a, "sequences"_a, "context"_a, "turns"_a, "asked"_a.none(),
           "room"_a, "layers"_a, "hidden"_a, "head"_a = nb::none(), "until"_a = nb::none(),
           "Where in `room` the logits begin; None if the rows or what is asked can't be.");
}

}  // namespace forerun
