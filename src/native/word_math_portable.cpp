#include "word_math_body.h"

namespace forerun {

const WordMath word_math_portable = functions;

}  // namespace forerun
