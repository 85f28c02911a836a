#include "word_math_body.h"

namespace forerun {

const WordMath word_math_avx512 = functions;

}  // namespace forerun
