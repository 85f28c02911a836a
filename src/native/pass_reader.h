// The numbers of a pass, read from Python.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include "pass.h"

namespace forerun {

namespace nb = nanobind;

// The whole number, or `none` if it is not one of 64 bits. Throws TypeError if it is no number.
constexpr long long none = std::numeric_limits<long long>::min();

inline long long number(PyObject* object) {
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
class PassReader {
 public:
  PassReader(const Pass& pass, const nb::dict& open, std::size_t context)
      : pass_(pass),
        open_(open),
        context_(static_cast<long long>(context)),
        first_(pass.network().entry != nullptr ? 1 : 0) {}

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
    if (parent == -1) return static_cast<long long>(batch.sequences[sequence]->length() + first_);
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
  const std::size_t first_;  // position of a sequence's first row: a head knows nothing before one
  std::map<long long, int> places_;
  std::vector<std::shared_ptr<KVSequence>> kept_;
};

}  // namespace forerun
