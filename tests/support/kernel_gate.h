// Gate of kernel sources: each compiles for every architecture without warnings and spills, in few enough registers.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

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
