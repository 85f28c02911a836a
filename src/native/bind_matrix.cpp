// Matrices and their products, for Python.

#include "bindings.h"

namespace forerun {

void bind_matrix(nanobind::module_&) {}

}  // namespace forerun
