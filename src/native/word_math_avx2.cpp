#include "word_math_body.h"

namespace forerun {

const WordMath word_math_avx2 = functions;

}  // namespace forerun
