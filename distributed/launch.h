// Start of a process as one of several by torchrun, told by environment variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace draftsmith {

// The place of a process in its group.
struct Launch {
  int64_t rank = 0;
  int64_t size = 1;        // the world size
  int64_t local_rank = 0;  // on its machine
  int64_t local_size = 1;  // processes on its machine
  std::string host = {};   // where the group's store of texts is served
  int64_t port = 0;
  bool store_exists = false;  // the launcher serves it; else rank 0 does
  std::string attempt = {};   // differs after each restart by the launcher
  bool operator==(const Launch&) const = default;
};

// Returns how this process was started, told by RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT and TORCHELASTIC_*, which torchrun sets, or a user or a script. Returns nullopt for a process by itself,
// also one that a launcher started alone. Errors: UserError that names every variable that is missing, no number or out
// of range.
std::optional<Launch> find_launch();

}  // namespace draftsmith
