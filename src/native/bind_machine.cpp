// What the machine gives a pass, for Python: measurements.

#include <stdexcept>

#include "bindings.h"
#include "machine.h"
#include "python_lock.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {
namespace {

constexpr std::size_t most_threads = 256;

void check(std::size_t count, std::size_t most) {
  if (count == 0 || count > most) throw std::invalid_argument("a count out of range");
}

void make_reader(MemoryReader* self, std::size_t bytes, std::size_t threads) {
  check(threads, most_threads);
  const Released released;
  new (self) MemoryReader(bytes, threads);
}

double barrier(std::size_t threads, std::size_t batches) {
  check(threads, most_threads);
  check(batches, 100000);
  const Released released;
  return barrier_seconds(threads, batches);
}

}  // namespace

void bind_machine(nb::module_& m) {
  nb::class_<MemoryReader>(m, "MemoryReader", "Memory of one size, read by so many threads.")
      .def("__init__", &make_reader, "bytes"_a, "threads"_a)
      .def("read", &MemoryReader::read, nb::call_guard<Released>(),
           "Reads all of it once; bytes a second.");
  m.def("barrier_seconds", &barrier, "threads"_a, "batches"_a = 50,
        "Seconds from one meeting of so many threads to the next: the median.");
}

}  // namespace forerun
