// The instructions that this folder's kernels use, chosen in one place.
#pragma once

#include <string>

namespace draftsmith::model {

// Sets of instructions, each of which holds the ones before it.
enum class Instructions {
  kPortable,  // those that the program was compiled for
  kAvx2,      // and FMA
  kAvx512,    // F, BW, DQ and VL, as x86-64-v4; and VNNI, where the processor has it
  kAmx,       // tiles of int8
};

// Returns the largest set that this processor has, or a smaller one that the environment variable DRAFTSMITH_CPU names:
// amx, avx512, avx2 or portable. The first call decides. Errors: UserError for other names, and for a set that the
// processor lacks.
Instructions cpu_instructions();
// Returns the choice between these sets. `wanted`: the variable's value; empty: the largest set.
Instructions choose_instructions(const std::string& wanted, Instructions largest);

// Returns whether the processor adds products of bytes in one instruction: AVX-512 VNNI.
bool has_byte_products();

// Returns the name that DRAFTSMITH_CPU takes.
std::string to_string(Instructions instructions);

}  // namespace draftsmith::model
