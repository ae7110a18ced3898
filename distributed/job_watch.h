// Watch over a job of several processes, in a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "distributed/engine.h"

namespace draftsmith {

// Tells the others that this process lives, and asks this process to stop (base/signals.h) when another one failed, was
// asked to stop or went silent. So a process whose work takes hours ends soon, too.
class JobWatch {
 public:
  // Takes a store of its own: a store takes one call at a time. A process is silent after `timeout` without a sign.
  JobWatch(std::unique_ptr<JobStore> store, const Launch& launch, std::chrono::seconds timeout);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Tells the others why this process is about to end.
  static void tell_failure(JobStore& store, int64_t rank, const std::string& message);

  // Returns why the job must end, or an empty text.
  std::string reason() const;
  // Waits for a reason for at most `time`.
  std::string await_reason(std::chrono::seconds time);

 private:
  using Clock = std::chrono::steady_clock;
  struct Sign {
    std::string value;
    Clock::time_point changed;
  };

  void run();
  // Returns why the job must end, if it must. Passes on that another process was asked to stop.
  std::string look();

  std::unique_ptr<JobStore> store_;
  int64_t rank_, size_;
  std::chrono::seconds timeout_;
  std::vector<Sign> signs_;  // by rank
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string reason_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace draftsmith
