#include "instruction_set.h"

#include <atomic>
#include <stdexcept>
#include <string>

namespace forerun {

namespace {

std::atomic<InstructionSet>& in_use() {
  static std::atomic<InstructionSet> set{best_instruction_set()};
  return set;
}

}  // namespace

InstructionSet best_instruction_set() {
#ifdef FORERUN_X86
  // These ask the operating system too: whether it keeps the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  if (avx512) return InstructionSet::avx512;
  if (avx2) return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

InstructionSet instruction_set() { return in_use().load(std::memory_order_relaxed); }

void use_instruction_set(InstructionSet set) {
  if (set > best_instruction_set()) {
    throw std::runtime_error(std::string("This machine has no ") + name_of(set) + ".");
  }
  in_use().store(set, std::memory_order_relaxed);
}

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512: return "avx512";
    case InstructionSet::avx2: return "avx2";
    case InstructionSet::portable: break;
  }
  return "portable";
}

}  // namespace forerun
