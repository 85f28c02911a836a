#include "row_math_body.h"

namespace forerun {

const RowMath row_math_portable = functions;

}  // namespace forerun
