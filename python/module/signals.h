// Ctrl-C in long calls: Python's own handlers run, and their exception ends the call.
#pragma once

#include <chrono>
#include <functional>

namespace draftsmith::python {

// Time between two looks at what waits: signals, other threads.
constexpr std::chrono::milliseconds kLookEvery{50};

// Runs Python's handlers of signals that have come, a few times a second at most. For threads that have released the
// interpreter's lock. Only Python's main thread has handlers; in others nothing happens.
class SignalPoll {
 public:
  // Throws PythonError if a handler raised an exception, as that of Ctrl-C does.
  void operator()();

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

// Runs a training or an evaluation in a thread of its own, while this thread serves Python's signal handlers. When one
// raises an exception, the work is asked to stop, saves what it has, and ends. LibTorch's settings that the work
// changes are restored. Call it with the interpreter's lock, which other threads get meanwhile.
//
// Errors: those of the work; Interrupted after Ctrl-C, or what another handler raised; Busy if other work runs.
void run_job(const std::function<void()>& work);

}  // namespace draftsmith::python
