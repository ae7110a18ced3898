// What a suite asks of the models: the evaluation decides what is run, timed and compared; the engine decodes. The one
// that loads model directories is made by make_model_engine; tests use one with known times and outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluate/measure/records.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/theory/ppd_simulation.h"
#include "evaluate/theory/prediction.h"
#include "infer/forced/prediction_quality.h"

namespace draftsmith::evaluate {

using Prompt = std::vector<int64_t>;  // token ids as the model is given them

// alpha_forced over given outputs, and how well target and drafter predict their tokens.
struct ForcedAlphas {
  double at_temperature_0 = 0;
  double at_temperature_1 = 0;
  int64_t positions = 0;
  infer::PredictionQuality target = {};
  infer::PredictionQuality drafter = {};
};

struct DecodeBatch {
  std::span<const Prompt> prompts;
  int64_t first_line = 0;  // of the task: which random streams are used
  int64_t max_new_tokens = 0;
  // Count everything, alpha included, even where that costs time.
  bool count = false;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Adds a problem for a method that is unknown or whose parts and parameters make no sense together.
  virtual void check(const Setting& run, Problems& problems) = 0;
  // Token ids of a source line of a task: its suffix is added, and what is longer than its max_source_tokens is cut
  // before suffix and EOS, which sets `cut`.
  // Errors: UserError, whose empty `where` the caller fills in with file and line, for ids that are none of the
  // model's and for prompts that leave a decoder-only model no room for the task's new tokens.
  virtual Prompt encode(const std::string& source, const TaskOptions& task, bool& cut) const = 0;
  // Ids of a reference as outputs are, EOS included: what the models should have put out.
  virtual std::vector<int64_t> encode_reference(const std::string& reference, const TaskOptions& task) const = 0;
  // What follows, in a source that max_source_tokens cuts, on the prompt: the rest of the text and, where it is no ids,
  // EOS. Empty for sources that are not cut, for encoder-decoders, and where a suffix or an EOS ends the prompt.
  virtual std::vector<int64_t> encode_continuation(const std::string& source, const TaskOptions& task) const = 0;
  // Text of generated ids; for `ids` the ids themselves without EOS, separated by blanks.
  virtual std::string text(const std::vector<int64_t>& generated, bool ids) const = 0;
  // Decodes prompts as one batch. Each record has one repetition with the line's share of the batch's time.
  virtual std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) = 0;
  // Difference of the run's model's two highest logits after `prefix` of new tokens.
  virtual double top_two_margin(const Setting& run, const Prompt& prompt, const std::vector<int64_t>& prefix) = 0;
  // Step times of the model that decodes and of what drafts for it in this run, after half of `output`.
  virtual infer::StepCosts step_costs(const Setting& run, const Prompt& prompt, const std::vector<int64_t>& output,
                                      int64_t max_tokens) = 0;
  // Of the same two.
  virtual ForcedAlphas forced_alpha(const Setting& run, std::span<const Prompt> prompts,
                                    const std::vector<std::vector<int64_t>>& outputs) = 0;
  // Defaults resolved; zeros where it is unknown.
  virtual LayerDepth depth(const Setting&) { return {}; }
  // Adds a problem for match rates that the models cannot give, at `where`.
  virtual void check(const MatchRateTable&, const std::string& /*where*/, Problems&) {}
  // Counts them on these prompts.
  virtual std::vector<infer::MatchRate> match_rates(const MatchRateTable&, std::span<const Prompt> /*prompts*/,
                                                    int64_t /*max_new_tokens*/) {
    return {};
  }
  // Times of the parts of a ppd run's tokens, after half of `output`.
  virtual LayerTimes ppd_times(const Setting&, const Prompt&, const std::vector<int64_t>&) { return {}; }
  // Number types, sizes, threads and directories, for results.json.
  virtual nlohmann::ordered_json description() const = 0;
  // Changes when a model directory changes: measurements of other models are not taken up again.
  virtual std::string fingerprint() const = 0;
};

}  // namespace draftsmith::evaluate
