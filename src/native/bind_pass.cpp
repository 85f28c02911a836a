// The whole pass, for Python.

#include "bindings.h"

namespace forerun {

void bind_pass(nanobind::module_&) {}

}  // namespace forerun
