// Keys of engagement curves in results.json; a part of results_json.cpp. Those of Quality are in quality_json.h.
#pragma once

#include "evaluate/results/engagement_result.h"
#include "evaluate/results/json_io.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, EngagementPoint>& point) {
  io("policy", point.policy);
  io("threshold", point.threshold);
  io("tokens", point.tokens);
  io("engaged", point.engaged);
  io("changed", point.changed);
  io.derived("engaged_share", point.engaged_share());
  io("quality", point.quality);
}

template <class Io>
void visit(Io& io, Of<Io, EngagementResult>& curve) {
  io("name", curve.name);
  io("task", curve.task);
  io("drafter", curve.drafter);
  io("lines", curve.lines);
  io("large", curve.large);
  io("points", curve.points);
}

}  // namespace draftsmith::evaluate
