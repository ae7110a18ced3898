// Keys of measured, predicted and accounted speeds in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/json_io.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, infer::PhaseSeconds>& seconds) {
  io("encode", seconds.encode);
  io("prefill", seconds.prefill);
  io("draft", seconds.draft);
  io("verify", seconds.verify);
  io("other", seconds.other);
  io.derived("total", seconds.total());
}

template <class Io>
void visit(Io& io, Of<Io, Percentiles>& percentiles) {
  io("p50", percentiles.p50);
  io("p95", percentiles.p95);
  io("p99", percentiles.p99);
}

template <class Io>
void visit(Io& io, Of<Io, Latency>& latency) {
  io("sentence_ms", latency.sentence_ms);
  io("token_ms", latency.token_ms);
}

template <class Io>
void visit(Io& io, Of<Io, Ratio>& ratio) {
  io.estimate("value", ratio.value, ratio.interval);
}

template <class Io>
void visit(Io& io, Of<Io, BeamSpeedup>& versus) {
  io("beams", versus.beams);
  io("setting", versus.setting);
  io.estimate("speedup", versus.speedup.value, versus.speedup.interval);
}

template <class Io>
void visit(Io& io, Of<Io, SpeedResult>& speed) {
  io("lines", speed.lines);
  io("tokens", speed.tokens);
  io("tokens_per_second", speed.tokens_per_second);
  io("ms_per_token", speed.ms_per_token);
  io.estimate("speedup", speed.speedup.value, speed.speedup.interval);
  io.estimate("speedup_total", speed.speedup_total.value, speed.speedup_total.interval);
  io.estimate("speedup_decode", speed.speedup_decode.value, speed.speedup_decode.interval);
  io("length_ratio", speed.length_ratio);
  io("decode_ms_per_token", speed.decode_ms_per_token);
  io("seconds", speed.seconds);
  io("speedup_decode_bound", speed.bound);
  io("sentences_per_second", speed.sentences_per_second);
  io("latency", speed.latency);
  if (!Io::kWrites || !speed.versus_beams.empty()) io("versus_beams", speed.versus_beams);
}

template <class Io>
void visit(Io& io, Of<Io, PredictedSpeed>& predicted) {
  io("cost_ratio", predicted.cost_ratio);
  io("speedup", predicted.speedup);
  io("e_pt_ms", predicted.e_pt_ms);
  io("long_run_ms", predicted.long_run_ms);
}

template <class Io>
void visit(Io& io, Of<Io, AccountedSpeed>& accounted) {
  io("cost_ratio", accounted.cost_ratio);
  io("speedup", accounted.speedup);
}

}  // namespace draftsmith::evaluate
