#include "infer/loop/timing.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace draftsmith::infer {

double& PhaseSeconds::operator[](Phase phase) {
  switch (phase) {
    case Phase::kEncode:
      return encode;
    case Phase::kPrefill:
      return prefill;
    case Phase::kDraft:
      return draft;
    case Phase::kVerify:
      return verify;
    case Phase::kOther:
      break;
  }
  return other;
}

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& added) {
  encode += added.encode;
  prefill += added.prefill;
  draft += added.draft;
  verify += added.verify;
  other += added.other;
  return *this;
}

PhaseSeconds PhaseSeconds::scaled(double factor) const {
  return {encode * factor, prefill * factor, draft * factor, verify * factor, other * factor};
}

PhaseTimer::PhaseTimer(at::Device device) : device_(device), since_(Clock::now()) {
  if (!device_.is_cpu()) {
    marks_.push_back({Phase::kOther, record()});
  }
}

c10::Event PhaseTimer::record() const {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

void PhaseTimer::enter(Phase phase) {
  if (device_.is_cpu()) {
    const auto now = Clock::now();
    seconds_[phase_] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
  } else {
    marks_.push_back({phase_, record()});
  }
  phase_ = phase;
}

PhaseSeconds PhaseTimer::lap() {
  enter(phase_);
  if (!device_.is_cpu()) {
    marks_.back().event.synchronize();
    for (size_t i = 1; i < marks_.size(); ++i) {
      seconds_[marks_[i].phase] += marks_[i - 1].event.elapsedTime(marks_[i].event) * 1e-3;
    }
    marks_.erase(marks_.begin(), marks_.end() - 1);
  }
  return std::exchange(seconds_, {});
}

}  // namespace draftsmith::infer
