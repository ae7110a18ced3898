// Keys of checks in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/json_io.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, FailedLines>& failed) {
  io("lines", failed.lines);
  io("first", failed.first);
  io("failure", failed.failure);
}

template <class Io>
void visit(Io& io, Of<Io, SettingFailure>& failure) {
  io("setting", failure.setting);
  io("during", failure.during);
  io("message", failure.message);
}

template <class Io>
void visit(Io& io, Of<Io, Divergence>& divergence) {
  io("line", divergence.line);
  io("position", divergence.position);
  io("token", divergence.token);
  io("greedy_token", divergence.greedy_token);
  io("margin", divergence.margin);
}

template <class Io>
void visit(Io& io, Of<Io, Exactness>& exactness) {
  io("lossless", exactness.lossless);
  io("lines", exactness.lines);
  io("differing_lines", exactness.differing_lines);
  io("largest_margin", exactness.largest_margin);
  io("explained_by_rounding", exactness.explained_by_rounding);
  io("tolerance", exactness.tolerance);
  io("unexplained_lines", exactness.unexplained_lines);
  io("first_unexplained", exactness.first_unexplained);
}

template <class Io>
void visit(Io& io, Of<Io, FirstTokenTest>& test) {
  io("tokens", test.tokens);
  io("distance", test.distance);
  io("p_value", test.p_value);
  io("passed", test.passed);
}

}  // namespace draftsmith::evaluate
