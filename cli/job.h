// The processes that run a command together, started by torchrun, Slurm or Open MPI (distributed/launch.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/signals.h"
#include "distributed/job_world.h"

namespace draftsmith::cli {

constexpr int64_t kJobTimeout = 600;  // seconds

// Adds --timeout, JoinOptions::timeout in seconds.
void add_timeout_flag(CLI::App& app, int64_t& timeout);

// The job of which this process is one, or none. When the process fails, it tells the others why.
class Job {
 public:
  // Waits for the other processes. Errors: as join_world().
  Job(const std::optional<Launch>& launch, at::Device device, int64_t timeout);

  World& world() const { return joined_ ? *joined_ : World::alone(); }

  // Returns what `work` returns. Errors: those of `work`; RunError in place of Interrupted if the job ends because
  // another process failed.
  template <class Work>
  auto run(const Work& work) {
    try {
      return work();
    } catch (const Interrupted&) {
      refuse_to_go_on();
      throw;
    } catch (const std::exception& error) {
      world().fail(error.what());
      throw;
    }
  }

 private:
  void refuse_to_go_on() const;

  std::unique_ptr<World> joined_;
};

}  // namespace draftsmith::cli
