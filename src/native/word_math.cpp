#include "word_math.h"

#include "instruction_set.h"

namespace forerun {

const WordMath& word_math() {
#ifdef FORERUN_X86
  switch (instruction_set()) {
    case InstructionSet::avx512: return word_math_avx512;
    case InstructionSet::avx2: return word_math_avx2;
    case InstructionSet::portable: break;
  }
#endif
  return word_math_portable;
}

}  // namespace forerun
