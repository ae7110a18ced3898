#include "model/cpu/instructions.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include <cstdlib>

#include "base/error.h"
#include "base/registry.h"

namespace draftsmith::model {
namespace {

constexpr const char* kVariable = "DRAFTSMITH_CPU";

const NamedValues<Instructions>& instruction_names() {
  using enum Instructions;
  static const NamedValues<Instructions> kNames(
      "instruction set", {{"portable", kPortable}, {"avx2", kAvx2}, {"avx512", kAvx512}, {"amx", kAmx}});
  return kNames;
}

#ifdef __x86_64__
// Returns whether the processor has AMX for int8 and the system lets the process use it. The first call asks for it.
bool has_tiles() {
  constexpr unsigned kTile = 1U << 24, kInt8 = 1U << 25;
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM of Linux' arch_prctl
  constexpr long kTileData = 18;     // the state's number
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
    return __builtin_cpu_supports("avx512f") != 0 && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  }();
  return has;
}
#endif

Instructions largest_instructions() {
#ifdef __x86_64__
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  if (avx512 && avx2) return has_byte_products() && has_tiles() ? Instructions::kAmx : Instructions::kAvx512;
  if (avx2) return Instructions::kAvx2;
#endif
  return Instructions::kPortable;
}

}  // namespace

Instructions choose_instructions(const std::string& wanted, Instructions largest) {
  if (wanted.empty()) return largest;
  const auto* found = instruction_names().find(wanted);
  if (found == nullptr) {
    throw UserError({kVariable, "unknown instructions", "amx, avx512, avx2 or portable", "'" + wanted + "'", ""});
  }
  if (found->value <= largest) return found->value;
  throw UserError(
      {kVariable, "this processor lacks such instructions", "at most " + to_string(largest), "'" + wanted + "'", ""});
}

Instructions cpu_instructions() {
  static const Instructions chosen = [] {
    const char* wanted = std::getenv(kVariable);
    return choose_instructions(wanted == nullptr ? "" : wanted, largest_instructions());
  }();
  return chosen;
}

bool has_byte_products() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

std::string to_string(Instructions instructions) {
  return instruction_names().name(instructions);
}

}  // namespace draftsmith::model
