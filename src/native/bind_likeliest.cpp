// The likeliest tokens of rows, for Python.

#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <stdexcept>
#include <tuple>

#include "bindings.h"
#include "likeliest.h"
#include "python_lock.h"
#include "row_threads.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {

namespace {

using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Number, class... Sizes>
nb::ndarray<nb::numpy, Number> owned(std::unique_ptr<Number[]> numbers, Sizes... sizes) {
  Number* const data = numbers.get();
  nb::capsule owner(numbers.release(),
                    [](void* p) noexcept { delete[] static_cast<Number*>(p); });
  return nb::ndarray<nb::numpy, Number>(data, {sizes...}, owner);
}

auto likeliest_of_rows(const Rows& logits, std::size_t most, std::size_t threads) {
  const std::size_t count = logits.shape(0), size = logits.shape(1);
  if (most == 0) throw std::invalid_argument("At least one token.");
  auto tokens = std::make_unique<std::int32_t[]>(count * most);
  auto values = std::make_unique<float[]>(count * most);
  auto rest = std::make_unique<double[]>(count);
  {
    const Released released;
    for_rows(count, threads, [&](std::size_t i) {
      rest[i] = likeliest(logits.data() + i * size, size, most, tokens.get() + i * most,
                          values.get() + i * most);
    });
  }
  return std::make_tuple(owned(std::move(tokens), count, most),
                         owned(std::move(values), count, most), owned(std::move(rest), count));
}

}  // namespace

void bind_likeliest(nb::module_& m) {
  m.def("likeliest", &likeliest_of_rows, "logits"_a.noconvert(), "most"_a, "threads"_a,
        "The likeliest tokens of each row, int32 and float32 [rows, most], and what the others "
        "weigh, float64 [rows].");
}

}  // namespace forerun
