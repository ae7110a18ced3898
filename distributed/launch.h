// Start of a process as one of several: by torchrun, Slurm or Open MPI, told by environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace draftsmith {

// The place of a process in its job.
struct Launch {
  std::string launcher = {};  // "torchrun", "Slurm", "Open MPI", or "RANK" for variables that someone else set
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  // on its machine
  int64_t local_size = 1;  // processes on its machine
  std::string host = {};   // where the store is served
  int64_t port = 0;
  bool store_exists = false;  // the launcher serves it; else rank 0 does
  std::string attempt = {};   // differs after each restart by the launcher
  bool operator==(const Launch&) const = default;
};

// Returns the value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Returns the variables of this process.
Environment process_environment();

// Returns how the process was started; nullopt for a process by itself, also one that a launcher started alone.
//
//   torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and TORCHELASTIC_*
//   Slurm:    SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE (srun sets them, also in a
//             batch script); MASTER_ADDR or else the first host of SLURM_STEP_NODELIST, MASTER_PORT or else a port made
//             from SLURM_JOB_ID
//   Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; MASTER_ADDR unless all run on one machine;
//             MASTER_PORT or else 29500
//
// Variables of the first kind that is there count. Errors: UserError that names every variable that is missing, no
// number or out of range.
std::optional<Launch> find_launch(const Environment& environment);

// Returns the first host of Slurm's list: "node[07-12,15],login" gives "node07".
std::string first_host(const std::string& node_list);

}  // namespace draftsmith
