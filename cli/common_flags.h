// Flags that many subcommands share: --device, --threads, --matmul-precision, --quiet, --set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <c10/core/Device.h>

#include "base/logging.h"
#include "base/options.h"
#include "distributed/launch.h"

namespace draftsmith::cli {

// Device, threads and verbosity of a command, as the user gives them.
struct ExecutionOptions {
  std::string device = "auto";
  int64_t threads = 0;
  std::string matmul_precision = "highest";
  bool quiet = false;
  static Fields<ExecutionOptions> fields();
};

struct CommonFlags {
  ExecutionOptions execution;
  std::vector<std::string> set;  // --set a.b=c, in order
};

// Adds --device, --threads, --matmul-precision and --quiet.
void add_execution_flags(CLI::App& app, ExecutionOptions& execution);
// Adds --set, which the user may repeat.
void add_set_flag(CLI::App& app, std::vector<std::string>& set);

// Device, threads and progress style of a command, after its flags were checked.
struct ExecutionContext {
  c10::Device device{c10::kCPU};
  int64_t threads = 1;
  ProgressStyle progress = ProgressStyle::kQuiet;
};

// Returns the flags of one of several processes (distributed/launch.h): its share of the machine's processors, its own
// GPU, and quiet unless it leads.
ExecutionOptions for_launch(ExecutionOptions execution, const Launch& launch);

// Checks the flags, starts logging, sets threads and precision, and chooses the device. Throws a UserError with every
// problem.
ExecutionContext begin_execution(const ExecutionOptions& execution);

}  // namespace draftsmith::cli
