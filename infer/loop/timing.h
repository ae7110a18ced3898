// Phases of decoding and their clock. On a GPU the clock records events, so timing adds no synchronisation.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <c10/core/Event.h>

#include "base/aten.h"

namespace draftsmith::infer {

enum class Phase { kEncode, kPrefill, kDraft, kVerify, kOther };

// Seconds of each phase. `greedy` and `sample` count the target's steps as `verify`.
struct PhaseSeconds {
  double encode = 0;
  double prefill = 0;
  double draft = 0;
  double verify = 0;
  double other = 0;

  double total() const { return encode + prefill + draft + verify + other; }
  // Returns the seconds without encoder and prefill: the numerator of `speedup_decode`.
  double decode() const { return draft + verify + other; }
  double& operator[](Phase phase);
  PhaseSeconds& operator+=(const PhaseSeconds& added);
  // Returns each phase multiplied by `factor` (a row's share of its batch).
  PhaseSeconds scaled(double factor) const;
};

// Attributes the time between calls of enter() to phases.
class PhaseTimer {
 public:
  // Starts in kOther.
  explicit PhaseTimer(at::Device device);
  // Ends the current phase and begins another.
  void enter(Phase phase);
  // Returns the time since the last lap(), by phase. On a GPU it waits until the device has finished all earlier work.
  PhaseSeconds lap();

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Phase phase;  // the phase that ended here
    c10::Event event;
  };
  c10::Event record() const;

  at::Device device_;
  Phase phase_ = Phase::kOther;
  Clock::time_point since_;
  PhaseSeconds seconds_;
  std::vector<Mark> marks_;  // on a GPU; marks_[0] is the beginning
};

}  // namespace draftsmith::infer
