// A stopwatch on the steady clock.
#pragma once

#include <chrono>

namespace draftsmith {

class Stopwatch {
 public:
  // Returns the seconds since construction or the last restart.
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  // Returns the seconds so far and starts again from 0.
  double restart() {
    const auto now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    begin_ = now;
    return elapsed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace draftsmith
