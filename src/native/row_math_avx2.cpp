#include "row_math_body.h"

namespace forerun {

const RowMath row_math_avx2 = functions;

}  // namespace forerun
