#include "cli/common_flags.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/logging.h"

namespace draftsmith::cli {

Fields<ExecutionOptions> ExecutionOptions::fields() {
  return Fields<ExecutionOptions>("run: flags of every command that runs a model")
      .add("device", &ExecutionOptions::device, NoResult{},
           "Device of the models: auto (the first GPU, else the CPU), cpu, cuda or cuda:N. Flag: --device.")
      .add("threads", &ExecutionOptions::threads, Range{0, 1024}, Unit{"threads"}, NoResult{},
           "CPU threads; 0 lets LibTorch choose, usually one for each physical core. Flag: --threads.")
      .add("matmul_precision", &ExecutionOptions::matmul_precision, NoResult{},
           "Matrix products on GPUs: highest, or high (TF32 for fp32, and shorter sums for bf16 and fp16: faster; "
           "near ties may go another way). Flag: --matmul-precision.")
      .add("quiet", &ExecutionOptions::quiet, NoResult{},
           "Shows no progress, and no messages except warnings. Flag: --quiet.");
}

void add_execution_flags(CLI::App& app, ExecutionOptions& execution) {
  app.add_option("--device", execution.device, "auto (the first GPU, else the CPU), cpu, cuda or cuda:N")
      ->capture_default_str();
  app.add_option("--threads", execution.threads,
                 "CPU threads; 0 lets LibTorch choose, usually one for each physical core")
      ->capture_default_str();
  app.add_option("--matmul-precision", execution.matmul_precision,
                 "On GPUs: highest, or high (TF32 for fp32, shorter sums for bf16 and fp16; faster)")
      ->capture_default_str();
  app.add_flag("--quiet,-q", execution.quiet, "Show no progress, and no messages except warnings");
}

void add_set_flag(CLI::App& app, std::vector<std::string>& set) {
  app.add_option("--set", set,
                 "Override one key of the file, for example --set target.training.length='500 steps'; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

ExecutionOptions for_launch(ExecutionOptions execution, const Launch& launch) {
  // Not the launcher's own choice: torchrun sets OMP_NUM_THREADS to 1.
  if (execution.threads == 0) execution.threads = std::max<int64_t>(1, cpu_cores() / launch.local_size);
  const bool any_gpu = execution.device == "cuda" || (execution.device == "auto" && choose_device("auto").is_cuda());
  if (any_gpu) execution.device = fmt::format("cuda:{}", launch.local_rank);
  execution.quiet = execution.quiet || launch.rank > 0;
  return execution;
}

ExecutionContext begin_execution(const ExecutionOptions& execution) {
  Problems problems;
  validate_options(execution, "", problems);
  problems.throw_if_any();
  start_logging(execution.quiet ? LogLevel::kWarning : LogLevel::kInfo);
  ExecutionContext context;
  context.device = choose_device(execution.device);
  context.threads = set_threads(execution.threads);
  set_matmul_precision(execution.matmul_precision);
  context.progress = progress_style(execution.quiet);
  return context;
}

}  // namespace draftsmith::cli
