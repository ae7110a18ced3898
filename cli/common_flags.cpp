#include "cli/common_flags.h"

#include "base/device.h"
#include "base/logging.h"

namespace draftsmith::cli {

Fields<RunOptions> RunOptions::fields() {
  return Fields<RunOptions>("run: flags of every command that runs a model")
      .add("device", &RunOptions::device, NoResult{},
           "Where models run: auto (the first GPU, else the CPU), cpu, cuda or cuda:N. Flag: --device.")
      .add("threads", &RunOptions::threads, Range{0, 1024}, Unit{"threads"}, NoResult{},
           "CPU threads; 0: LibTorch's choice, usually one for each physical core. Flag: --threads.")
      .add("quiet", &RunOptions::quiet, NoResult{}, "No progress and no messages but warnings. Flag: --quiet.");
}

void add_run_flags(CLI::App& app, RunOptions& run) {
  app.add_option("--device", run.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--threads", run.threads, "CPU threads; 0: LibTorch's choice, usually one for each physical core")
      ->capture_default_str();
  app.add_flag("--quiet,-q", run.quiet, "No progress and no messages but warnings");
}

void add_set_flag(CLI::App& app, std::vector<std::string>& set) {
  app.add_option("--set", set,
                 "Overrides one key of the file, for example --set target.training.length='500 steps'; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

RunContext begin_run(const RunOptions& run) {
  Problems problems;
  validate_options(run, "", problems);
  problems.throw_if_any();
  start_logging(run.quiet ? LogLevel::kWarning : LogLevel::kInfo);
  RunContext context;
  context.device = choose_device(run.device);
  context.threads = set_threads(run.threads);
  context.progress = progress_style(run.quiet);
  return context;
}

}  // namespace draftsmith::cli
