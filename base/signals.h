// SIGINT and SIGTERM as a request that loops poll, so that a run saves its work and exits with 130 or 143.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace draftsmith {

// End of a run that was asked to stop; the exit code is 128 plus the signal.
class Interrupted : public Error {
 public:
  // `saved` tells the user which work was kept and how to continue.
  Interrupted(int signal, const std::string& saved);
  int exit_code() const override { return 128 + signal_; }

 private:
  int signal_;
};

// Watch for signals: while it exists, the first SIGINT or SIGTERM only sets a flag, and a second one ends the process
// at once. The flag belongs to the process, so at most one watch may exist. Its destructor restores the earlier
// handlers. A program that handles signals itself (Python) keeps its handlers with kCallers, and calls request_stop().
class SignalWatch {
 public:
  enum class Handlers { kOwn, kCallers };
  explicit SignalWatch(Handlers handlers = Handlers::kOwn);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  Handlers handlers_;
};

// Returns the signal received since the watch began, 0 for none. Loops may call it in every step.
int stop_requested();

// Asks this process to stop as if `signal` had come, from any thread. Nothing happens if one came before.
void request_stop(int signal);

// Throws Interrupted if a stop was requested.
void throw_if_stop_requested(std::string_view saved);

// Long work of this thread. While it exists, each work_point() on the way ends it if a stop was requested, and calls
// `tick`, which lets a progress print. Without `saved` (as in Interrupted) a stop waits, unless `tick` throws. Of
// several the innermost counts.
class LongWork {
 public:
  explicit LongWork(std::string saved, std::function<void()> tick = {});
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

 private:
  friend void work_point();
  std::string saved_;
  std::function<void()> tick_;
  const LongWork* outer_;
};

// Marks a place where long work may end: between rounds of decoding, layers of a pass, lines of a file. Takes
// nanoseconds, and does nothing outside of long work. Errors: Interrupted: drop what was computed.
void work_point();

}  // namespace draftsmith
