// What the machine gives a pass, for Python: measurements.

#include <stdexcept>

#include "bindings.h"
#include "machine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {
namespace {

constexpr std::size_t most_threads = 256;

void check(std::size_t count, std::size_t most) {
  if (count == 0 || count > most) throw std::invalid_argument("a count out of range");
}

double bandwidth(std::size_t bytes, std::size_t threads, std::size_t tries) {
  check(threads, most_threads);
  check(tries, 1000);
  const nb::gil_scoped_release released;
  return read_bandwidth(bytes, threads, tries);
}

double barrier(std::size_t threads, std::size_t batches) {
  check(threads, most_threads);
  check(batches, 100000);
  const nb::gil_scoped_release released;
  return barrier_seconds(threads, batches);
}

}  // namespace

void bind_machine(nb::module_& m) {
  m.def("read_bandwidth", &bandwidth, "bytes"_a, "threads"_a, "tries"_a = 5,
        "Bytes a second that so many threads read from memory of this size: the best try.");
  m.def("barrier_seconds", &barrier, "threads"_a, "batches"_a = 50,
        "Seconds from one meeting of so many threads to the next: the median.");
}

}  // namespace forerun
