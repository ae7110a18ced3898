// SIGINT and SIGTERM as a request that loops poll, so that a run saves what it has and exits with 130 or 143.
#pragma once

#include <string>

#include "base/error.h"

namespace draftsmith {

// The run was asked to stop and did; its exit code is 128 plus the signal.
class Interrupted : public Error {
 public:
  // `saved` says what was kept and how to go on, for the message.
  Interrupted(int signal, const std::string& saved);
  int exit_code() const override { return 128 + signal_; }

 private:
  int signal_;
};

// While one exists, the first SIGINT or SIGTERM only sets a flag; a second one ends the process at once. The flag is of
// the process (signals are), so at most one watch exists at a time; its destructor restores the earlier handlers.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
};

// The signal received since the watch began, 0 for none. Cheap enough for every step of a loop.
int stop_requested();

// Throws Interrupted when a stop was requested.
void throw_if_stop_requested(const std::string& saved);

}  // namespace draftsmith
