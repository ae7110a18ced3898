// Runs the two sides of a round of predictive pipelined decoding beside each other: the branches' first layers, and the
// last layers of the token that they branch from.
#pragma once

#include <functional>
#include <memory>

#include "base/aten.h"
#include "base/registry.h"

namespace draftsmith::infer {

// Execution of the branches beside the last layers of their parent.
enum class PpdExecution {
  kBatched,  // one side after the other: the k branches as one pass, then the last layers
  kThreads,  // branches on a worker thread; each side has its share of the cores (CPU)
  kStreams,  // branches on a second stream (GPU)
};

// Returns their names in options.
const NamedValues<PpdExecution>& ppd_executions();

// The work of one side.
using PpdSide = std::function<void()>;

class PpdSides {
 public:
  // kThreads and kStreams start one worker thread, which lives as long as this object. Until then the caller and the
  // worker share the CPU's threads (at::get_num_threads), at least one each. The creating thread must destroy it.
  // Errors: std::logic_error for an execution that the device does not have.
  PpdSides(PpdExecution execution, at::Device device);
  ~PpdSides();
  PpdSides(const PpdSides&) = delete;
  PpdSides& operator=(const PpdSides&) = delete;

  // Runs both sides to their end and rethrows their exceptions, that of `main` first. `main` runs on the caller's
  // thread and stream. Earlier work happens before both sides and later work after both, on a GPU in the order of the
  // caller's stream. No side may write data that the other reads or writes.
  void run(const PpdSide& branches, const PpdSide& main);
  // Runs the branches, then main.
  static void run_in_turn(const PpdSide& branches, const PpdSide& main);

 private:
  class Worker;
  class BranchStream;

  int threads_;  // the caller's limit before construction
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<BranchStream> stream_;
};

}  // namespace draftsmith::infer
