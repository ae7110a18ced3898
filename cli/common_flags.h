// Flags that many subcommands share (--device, --threads, --quiet, --set), and what they become before the work begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <c10/core/Device.h>

#include "base/options.h"
#include "base/progress.h"

namespace draftsmith::cli {

struct RunOptions {
  std::string device = "auto";
  int64_t threads = 0;
  bool quiet = false;
  static Fields<RunOptions> fields();
};

struct CommonFlags {
  RunOptions run;
  std::vector<std::string> set;  // --set a.b=c, in order
};

// Adds --device, --threads and --quiet.
void add_run_flags(CLI::App& app, RunOptions& run);
// Adds --set, which may be repeated.
void add_set_flag(CLI::App& app, std::vector<std::string>& set);

// What a subcommand runs with.
struct RunContext {
  c10::Device device{c10::kCPU};
  int64_t threads = 1;
  ProgressStyle progress = ProgressStyle::kQuiet;
};

// Checks the flags, starts logging, sets the threads and chooses the device. Throws UserError with every problem.
RunContext begin_run(const RunOptions& run);

}  // namespace draftsmith::cli
