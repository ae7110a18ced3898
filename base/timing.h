// Stopwatches: of the steady clock, and of a thread's time on processors.
#pragma once

#include <chrono>
#include <ctime>

namespace draftsmith {

class Stopwatch {
 public:
  // Returns the seconds since construction.
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_ = Clock::now();
};

// Returns the seconds that the calling thread has run on a processor.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace draftsmith
