#include "likeliest.h"

#include "instruction_set.h"

namespace forerun {

double likeliest(const float* logits, std::size_t size, std::size_t most, std::int32_t* tokens,
                 float* values) {
#ifdef FORERUN_X86
  switch (instruction_set()) {
    case InstructionSet::avx512: return avx512_likeliest(logits, size, most, tokens, values);
    case InstructionSet::avx2: return avx2_likeliest(logits, size, most, tokens, values);
    case InstructionSet::portable: break;
  }
#endif
  return portable_likeliest(logits, size, most, tokens, values);
}

}  // namespace forerun
