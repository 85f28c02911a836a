// Which instructions this machine has. Every set gives the same bits; they differ in time alone.
#pragma once

namespace forerun {

enum class InstructionSet { portable, avx2, avx512 };

// The widest set that this machine and its operating system carry:
// avx2 means AVX2, FMA and F16C; avx512 also AVX-512 F, BW, VL, DQ and VNNI.
InstructionSet best_instruction_set();

// The set in use, `best_instruction_set()` unless told otherwise.
InstructionSet instruction_set();

// Use this set from now on; not while a pass runs. std::runtime_error if the machine lacks it.
void use_instruction_set(InstructionSet set);

const char* name_of(InstructionSet set);

}  // namespace forerun
