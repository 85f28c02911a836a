// Which instructions this machine has, and which of them the kernels use.
#pragma once

namespace forerun {

enum class InstructionSet { portable, avx2, avx512 };

// Whether the machine has it and this build has kernels for it.
bool has_instruction_set(InstructionSet set);

InstructionSet best_instruction_set();

// The set in use: the best one until another is chosen.
InstructionSet instruction_set();

// For tests and measurements; not while another thread multiplies.
// Throws std::invalid_argument if the machine or the build lacks it.
void use_instruction_set(InstructionSet set);

}  // namespace forerun
