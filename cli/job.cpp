#include "cli/job.h"

#include <chrono>
#include <string>

#include "base/logging.h"

namespace draftsmith::cli {

void add_timeout_flag(CLI::App& app, int64_t& timeout) {
  app.add_option("--timeout", timeout,
                 "Of several processes (torchrun, srun, mpirun): seconds to wait for the others at the start and in a "
                 "training step, and for a sign of life of each")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400))
      ->type_name("SECONDS");
}

Job::Job(const std::optional<Launch>& launch, at::Device device, int64_t timeout) {
  if (!launch) return;
  joined_ = join_world(*launch, {.timeout = std::chrono::seconds(timeout), .device = device});
  log_info("{} processes, started by {}", launch->size, launch->launcher);
}

void Job::refuse_to_go_on() const {
  const std::string reason = world().reason();
  if (reason.empty()) return;
  throw RunError({.what = "the job ends: " + reason,
                  .hint = "finished work is kept; the same command goes on from the last checkpoint"});
}

}  // namespace draftsmith::cli
