#include "row_math_body.h"

namespace forerun {

const RowMath row_math_avx512 = functions;

}  // namespace forerun
