// The engine of a job of several processes: a store of texts that all see, and sums of tensors. c10d_engine.cpp makes
// both from LibTorch's c10d, and no other file sees c10d.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/aten.h"
#include "distributed/launch.h"

namespace draftsmith {

// Texts by key, which all processes of a job see. Errors of all members: std::exception when the store is gone,
// NoAnswer (distributed/patient_calls.h) when it does not answer within the timeout of open_store().
class JobStore {
 public:
  virtual ~JobStore() = default;
  virtual void set(const std::string& key, const std::string& text) = 0;
  // Returns whether all keys are there.
  virtual bool has(const std::vector<std::string>& keys) = 0;
  // Returns the texts of keys that are there.
  virtual std::vector<std::string> get(const std::vector<std::string>& keys) = 0;
  virtual void remove(const std::string& key) = 0;
  // Adds 1 to a count, which begins with 0, and returns what it was before.
  virtual int64_t count(const std::string& key) = 0;
};

// Opens the store of a job; process 0 serves it unless the launcher does and `may_serve`. Errors: UserError when the
// port is taken, or when the host does not answer within `timeout`.
std::unique_ptr<JobStore> open_store(const Launch& launch, std::chrono::seconds timeout, bool may_serve);

// Waits until an operation that was begun is done.
using Completion = std::function<void()>;

// Operations on one tensor of each process, of the same shape and type, contiguous, in place. All processes begin the
// same operations in the same order. Errors of all members and completions: std::exception when another process is lost
// or late.
class TensorGroup {
 public:
  virtual ~TensorGroup() = default;
  // Begins to sum a tensor.
  virtual Completion begin_sum(const at::Tensor& tensor) = 0;
  // Begins to give all processes the tensor of process `from`.
  virtual Completion begin_broadcast(const at::Tensor& tensor, int64_t from) = 0;
  // Gives a tensor to process `to`, which receives it at the same time.
  virtual void send(const at::Tensor& tensor, int64_t to) = 0;
  virtual void receive(const at::Tensor& tensor, int64_t from) = 0;
};

// Connects the processes of a job: Gloo for tensors on CPUs, NCCL for those on GPUs. Gloo listens where
// GLOO_SOCKET_IFNAME says, else where the host's name leads. `store` is one of open_store().
std::unique_ptr<TensorGroup> connect_tensors(JobStore& store, const Launch& launch, std::chrono::seconds timeout,
                                             at::Device device);

}  // namespace draftsmith
