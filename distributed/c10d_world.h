// Joins a process to its job through LibTorch's process groups: Gloo for tensors on CPUs, NCCL on GPUs, and a TCP store
// for texts.
#pragma once

#include <chrono>
#include <memory>

#include "base/aten.h"
#include "distributed/launch.h"
#include "distributed/world.h"

namespace draftsmith {

struct JoinOptions {
  // Wait for the other processes at the start, in one sum, and for a sign of life of each.
  std::chrono::seconds timeout{600};
  at::Device device{at::kCPU};  // of the tensors that are summed
};

// Waits until all processes of the job are here. Errors: UserError when the port is taken or the host does not answer,
// RunError when not all processes come in time. Gloo listens where GLOO_SOCKET_IFNAME says, else where the host's name
// leads.
std::unique_ptr<World> join_world(const Launch& launch, const JoinOptions& options);

}  // namespace draftsmith
