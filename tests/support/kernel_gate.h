// Gate of kernel sources: each compiles for every architecture without warnings and spills, in few enough registers.
#pragma once

#include <algorithm>
#include <cstdio>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/kernel_loader.h"

namespace draftsmith {

// Returns why the compiler cannot be loaded; nothing where it can.
inline std::optional<std::string> nvrtc_missing() {
  try {
    const Nvrtc compiler;
    return std::nullopt;
  } catch (const RunError& error) {
    return error.what();
  }
}

// Resources that a kernel uses, as ptxas reports them.
struct KernelUse {
  std::string kernel;
  int registers = 0;     // of a thread
  int spilled = 0;       // bytes of spill stores and loads of a thread
  int stack = 0;         // bytes of a thread
  int shared_bytes = 0;  // of a block
};

// Reads the uses of all kernels from CompiledKernels::log, by name.
inline std::vector<KernelUse> kernel_uses(const std::string& log) {
  static const std::regex kEntry("Compiling entry function '([^']+)'");
  static const std::regex kStack("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads");
  static const std::regex kRegisters("Used (\\d+) registers"), kShared("(\\d+) bytes smem");
  std::vector<KernelUse> uses;
  std::istringstream lines(log);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, kEntry)) uses.push_back({.kernel = match[1]});
    if (uses.empty()) continue;
    if (std::regex_search(line, match, kStack)) {
      uses.back().stack = std::stoi(match[1]);
      uses.back().spilled = std::stoi(match[2]) + std::stoi(match[3]);
    }
    if (std::regex_search(line, match, kRegisters)) uses.back().registers = std::stoi(match[1]);
    if (std::regex_search(line, match, kShared)) uses.back().shared_bytes = std::stoi(match[1]);
  }
  std::sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.kernel < b.kernel; });
  return uses;
}

// Compiles `source` for an architecture and prints a table. Fails as expect_good_kernels() says.
inline void expect_good_kernels_of(const KernelSource& source, const std::string& architecture, size_t kernels,
                                   int most_registers) {
  const CompiledKernels compiled = Nvrtc().compile(source, architecture);
  EXPECT_EQ(compiled.log.find("warning"), std::string::npos) << compiled.log;
  EXPECT_TRUE(compiled.cubin.starts_with("\177ELF"));
  const std::vector<KernelUse> uses = kernel_uses(compiled.log);
  EXPECT_EQ(uses.size(), kernels) << compiled.log;
  for (const KernelUse& use : uses) {
    std::printf("%-7s %-28s %3d registers %3d spilled %3d stack %5d shared\n", architecture.c_str(), use.kernel.c_str(),
                use.registers, use.spilled, use.stack, use.shared_bytes);
    EXPECT_GT(use.registers, 0) << use.kernel;
    EXPECT_LE(use.registers, most_registers) << use.kernel << ' ' << architecture;
    EXPECT_EQ(use.spilled, 0) << use.kernel << ' ' << architecture;
    EXPECT_EQ(use.stack, 0) << use.kernel << ' ' << architecture;
  }
}

// Compiles `source` for sm_80, sm_90 and sm_100, as far as the compiler knows them; where its kernels can be launched
// early, also for that. No kernel may take more than `most_registers` of a thread: at 64, blocks of 1,024 threads fit.
inline void expect_good_kernels(const KernelSource& source, size_t kernels, int most_registers) {
  const Nvrtc compiler;
  for (const int capability : {80, 90, 100}) {
    const auto& known = compiler.capabilities();
    if (std::find(known.begin(), known.end(), capability) == known.end()) continue;
    const std::string architecture = "sm_" + std::to_string(capability);
    expect_good_kernels_of(source, architecture, kernels, most_registers);
    if (!source.waits_for_inputs || capability < kFirstEarly) continue;
    expect_good_kernels_of(early_source(source), architecture, kernels, most_registers);
  }
}

}  // namespace draftsmith
