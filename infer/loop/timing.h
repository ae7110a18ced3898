// Phases of decoding and the clock that times them. On a GPU it records events, so that timing adds no synchronisation.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <c10/core/Event.h>

#include "base/aten.h"

namespace draftsmith::infer {

enum class Phase { kEncode, kPrefill, kDraft, kVerify, kOther };

// Seconds spent in each phase. Greedy and sampling decoders count the target's steps as `verify`.
struct PhaseSeconds {
  double encode = 0;
  double prefill = 0;
  double draft = 0;
  double verify = 0;
  double other = 0;

  double total() const { return encode + prefill + draft + verify + other; }
  // Without encoder and prefill: the numerator of `speedup_decode`.
  double decode() const { return draft + verify + other; }
  double& operator[](Phase phase);
  PhaseSeconds& operator+=(const PhaseSeconds& added);
  // Each phase times `factor` (a row's share of its batch).
  PhaseSeconds scaled(double factor) const;
};

// Attributes the time between calls of enter() to phases.
class PhaseTimer {
 public:
  // Starts in kOther.
  explicit PhaseTimer(at::Device device);
  // Ends the current phase.
  void enter(Phase phase);
  // Time since the last take(), by phase. On a GPU it waits until the device has finished what was enqueued before.
  PhaseSeconds take();

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
