#include "evaluate/suite/setting_defaults.h"

#include "infer/beam/hypotheses.h"
#include "infer/windows/router.h"
#include "model/kinds/router.h"

namespace draftsmith::evaluate {
namespace {

// Returns the options with the defaults of beam search.
DecodeOptions with_beams(DecodeOptions decode) {
  const infer::BeamSettings usual;
  decode.num_beams = decode.num_beams.value_or(usual.beams);
  decode.length_penalty = decode.length_penalty.value_or(usual.length_penalty);
  if (decode.early_stopping.empty()) decode.early_stopping = infer::early_stoppings().name(usual.early_stopping);
  return decode;
}

// Returns whether the router's own threshold decides.
bool asks_router(const DecodeOptions& decode) {
  return decode.drafts() && decode.window_rule_name() == infer::RouterWindow::kind().name;
}

}  // namespace

void take_sampling(const DecodeOptions& from, DecodeOptions& decode) {
  if (!decode.temperature) decode.temperature = from.temperature;
  if (!decode.top_k) decode.top_k = from.top_k;
  if (!decode.top_p) decode.top_p = from.top_p;
  if (!decode.min_p) decode.min_p = from.min_p;
}

void take_processors(const DecodeOptions& from, DecodeOptions& decode) {
  decode.repetition_penalty = from.repetition_penalty;
  decode.no_repeat_ngram_size = from.no_repeat_ngram_size;
  decode.min_new_tokens = from.min_new_tokens;
  decode.stop_strings = from.stop_strings;
}

DecodeOptions with_defaults(DecodeOptions decode) {
  if (decode.searches_beams()) return with_beams(std::move(decode));
  if (!decode.samples_by_default()) return decode;
  DecodeOptions plain;
  plain.temperature = 1;
  plain.top_k = 0;
  plain.top_p = 1;
  plain.min_p = 0;
  take_sampling(plain, decode);
  return decode;
}

SuiteOptions with_router_defaults(const SuiteOptions& options) {
  SuiteOptions suite = options;
  for (SettingGrid& run : suite.run) {
    auto& thresholds = run.lists[&DecodeOptions::threshold];
    auto& longest = run.lists[&DecodeOptions::max_draft];
    if (!asks_router(run.decode) || (!thresholds.empty() && !longest.empty())) continue;
    if (run.decode.router.empty() || !model::is_router(run.decode.router)) continue;
    const model::RouterConfig config = model::load_router(run.decode.router).config();
    if (thresholds.empty()) thresholds = {config.threshold};
    if (longest.empty()) longest = {config.max_draft};
  }
  return suite;
}

}  // namespace draftsmith::evaluate
