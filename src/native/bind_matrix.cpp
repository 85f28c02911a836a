// Packed matrices and their products, for Python: tests and measurements.

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "bindings.h"
#include "multiply.h"
#include "python_lock.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forerun {

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Factors = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void make_matrix(Matrix* self, const std::string& type_name, const Bytes& data,
                 std::size_t outputs, std::size_t inputs) {
  const TensorType type = type_called(type_name);
  const std::size_t row_bytes = stored_row_bytes(type, inputs);
  if (row_bytes == 0 || data.size() % row_bytes != 0 || data.size() / row_bytes != outputs) {
    throw std::invalid_argument(std::to_string(data.size()) + " bytes are not " +
                                std::to_string(outputs) + " rows of " + std::to_string(inputs) +
                                " weights of type " + type_name + ".");
  }
  new (self) Matrix(type, data.data(), outputs, inputs);
}

template <typename Result>
Result owned(std::unique_ptr<float[]> values, std::initializer_list<std::size_t> shape) {
  float* const data = values.get();
  nb::capsule owner(values.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Result(data, shape, owner);
}

auto product_of(const Matrix& w, const Rows& x, std::size_t first_panel,
                const std::optional<std::size_t>& last_panel,
                const std::optional<Factors>& factors) {
  if (x.shape(1) != w.inputs()) throw std::invalid_argument("Rows and matrix differ in length.");
  const std::size_t rows = x.shape(0);
  if (factors && factors->size() != rows) throw std::invalid_argument("Each row has one factor.");
  std::unique_ptr<float[]> out(new float[rows * w.outputs()]());
  {
    const Released released;
    Activations activations;
    activations.resize(rows, w.inputs(), true);
    for (std::size_t row = 0; row < rows; ++row) {
      activations.put(row, 0, w.inputs(), x.data() + row * w.inputs());
    }
    const Results to{out.get() + first_panel * panel_outputs, w.outputs(),
                     factors ? factors->data() : nullptr};
    multiply(w, activations, first_panel, last_panel.value_or(w.panels()), to);
  }
  return owned<nb::ndarray<nb::numpy, float, nb::ndim<2>>>(std::move(out), {rows, w.outputs()});
}

auto row_of(const Matrix& w, std::size_t output) {
  std::unique_ptr<float[]> out(new float[w.inputs()]);
  dequantise(w, output, 0, w.inputs(), out.get());
  return owned<nb::ndarray<nb::numpy, float, nb::ndim<1>>>(std::move(out), {w.inputs()});
}

}  // namespace

void bind_matrix(nb::module_& m) {
  nb::class_<Matrix>(m, "Matrix", "Weights packed for the product with few rows.")
      .def("__init__", &make_matrix, "type_name"_a, "data"_a.noconvert(), "outputs"_a, "inputs"_a,
           "From a GGUF tensor's bytes, uint8; type_name as in GGUF, say \"Q4_1\".")
      .def_prop_ro("outputs", &Matrix::outputs)
      .def_prop_ro("inputs", &Matrix::inputs)
      .def_prop_ro("panels", &Matrix::panels, "Of 16 outputs each.")
      .def_prop_ro("bytes", &Matrix::bytes, "What a pass reads.")
      .def("dequantise_row", &row_of, "output"_a, "One row, float32 [inputs].");
  m.def("multiply", &product_of, "matrix"_a, "x"_a.noconvert(), "first_panel"_a = 0,
        "last_panel"_a = nb::none(), "factors"_a.noconvert() = nb::none(),
        "Rows x, float32 [M, inputs], times the matrix, each row then times its factor, float32 "
        "[M]: float32 [M, outputs]. The outputs of other panels than [first_panel, last_panel) are "
        "zeros.");
}

}  // namespace forerun
