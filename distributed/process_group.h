// The processes that train together, started by torchrun: a process group of LibTorch's c10d, with Gloo for tensors on
// CPUs and NCCL for those on GPUs. All other code knows only this interface; a process by itself is a group in which
// every function is the identity.
//
// All processes call the same functions in the same order. When a process fails, the launcher ends the others
// (torchrun does). Randomness never depends on a rank: work is divided by its number (a micro-batch, a shard), so
// results do not depend on the world size but for the rounding of sums.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/aten.h"

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
  bool operator==(const Launch&) const = default;
};

// Returns how this process was started, told by RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT and TORCHELASTIC_*, which torchrun sets, or a user or a script. Returns nullopt for a process by itself,
// also one that a launcher started alone. Errors: UserError that names every variable that is missing, no number or out
// of range.
std::optional<Launch> find_launch();

struct GroupOptions {
  std::chrono::seconds timeout{600};  // of the start, and of each operation for which all processes wait
  at::Device device{at::kCPU};        // of the tensors
};

class ProcessGroup {
 public:
  // Returns the group of a process by itself.
  static ProcessGroup& single();

  // Waits until all processes are here. Errors: UserError when the port is taken or the host does not answer, RunError
  // when not all processes come in time.
  ProcessGroup(const Launch& launch, const GroupOptions& options);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int64_t rank() const { return rank_; }  // 0 to size - 1
  int64_t size() const { return size_; }
  bool is_alone() const { return size_ == 1; }
  // Returns whether this process writes files and talks to the user: rank 0 does.
  bool leads() const { return rank_ == 0; }
  // Returns whether piece `number` of a divided work is this process's.
  bool has(int64_t number) const { return number % size_ == rank_; }

  // Replaces each tensor by its sum over all processes, whose tensors have the same shapes and types. All processes get
  // the same bits. Errors: RunError when another process is lost or does not answer within GroupOptions::timeout.
  void sum(const std::vector<at::Tensor>& tensors);
  // Replaces each tensor by the leader's. Errors: as sum().
  void broadcast(const std::vector<at::Tensor>& tensors);

  // Returns the texts of all processes, by rank. Errors: RunError that names the processes that do not come in time, or
  // as sum(); Interrupted when this process was asked to stop and not all come within 20 s.
  std::vector<std::string> gather(const std::string& what, const std::string& text);
  // Returns the text of rank 0. Errors: as gather().
  std::string from_leader(const std::string& what, const std::string& text);
  // Checks that all processes have the same `value` of `what` ("the recipe"). Errors: UserError that names the
  // processes that differ; as gather().
  void require_same(const std::string& what, const std::string& value);

  // Waits until all processes are here, for as long as it takes: `what` may be hours of work of one of them. Errors: as
  // gather() but for the limits; Interrupted as soon as this process is asked to stop.
  void wait_for_all(const std::string& what);
  // Returns what each process's part of a work gives, by rank; waits as wait_for_all(). When one process is asked to
  // stop during its part, all throw Interrupted (base/signals.h) together.
  std::vector<nlohmann::json> gather_parts(const std::string& what, const std::function<nlohmann::json()>& part);

  // Returns the seconds that this process spent in these functions, mostly waiting for others.
  double waited() const;

 private:
  struct Connection;
  ProcessGroup();

  int64_t rank_ = 0;
  int64_t size_ = 1;
  std::unique_ptr<Connection> connection_;  // none of a single process
};

}  // namespace draftsmith
