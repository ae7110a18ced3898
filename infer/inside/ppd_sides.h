// How the two sides of a round of predictive pipelined decoding run beside each other: the branches' first layers and
// the last layers of the token that they branch from.
#pragma once

#include <functional>
#include <memory>

#include "base/aten.h"

namespace draftsmith::infer {

// How the branches run beside the last layers of their parent.
enum class PpdExecution {
  kBatched,  // one after the other on one device: the k branches as one pass, then the last layers
  kThreads,  // on a worker thread, each side with its share of the cores (CPU)
  kStreams,  // on a stream of their own (GPU)
};

// A side's work.
using PpdSide = std::function<void()>;

class PpdSides {
 public:
  // kThreads and kStreams begin one worker thread, which lives as long as this. The CPU's threads (at::get_num_threads)
  // are shared between the caller and the worker until then, at least one each. Must be destroyed by the thread that
  // made it. std::logic_error for an execution that the device does not have.
  PpdSides(PpdExecution execution, at::Device device);
  ~PpdSides();
  PpdSides(const PpdSides&) = delete;
  PpdSides& operator=(const PpdSides&) = delete;

  // Runs both to their end and throws what they throw, `main`'s first. `main` runs on the caller's thread and stream.
  // What was done before happens before both, and both happen before what is done afterwards; on a GPU in the order of
  // the caller's stream. Neither may write what the other reads or writes.
  void run(const PpdSide& branches, const PpdSide& main);
  // The same one after the other: branches, then main.
  static void run_in_turn(const PpdSide& branches, const PpdSide& main);

 private:
  class Worker;
  class BranchStream;

  int threads_;  // before this was made
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<BranchStream> stream_;
};

}  // namespace draftsmith::infer
