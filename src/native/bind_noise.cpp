// The noise and the draw, for Python.

#include "bindings.h"

namespace forerun {

void bind_noise(nanobind::module_&) {}

}  // namespace forerun
