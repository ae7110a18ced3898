// Interface between an evaluation and the models: the evaluation chooses settings and times them, the engine decodes.
// Tests have one with known outputs and times.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluate/measure/measurement_store.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"
#include "infer/costs/decode_work.h"
#include "infer/costs/step_costs.h"
#include "infer/engagement.h"
#include "infer/forced/teacher_forcing.h"

namespace draftsmith::evaluate {

using Prompt = std::vector<int64_t>;  // token ids, as a model reads them

// Lines that are decoded together.
struct DecodeBatch {
  std::span<const Prompt> prompts;
  int64_t first_line = 0;  // index of the first prompt in its task; chooses the random streams
  int64_t max_new_tokens = 0;
  bool count = false;  // counts everything, alpha included, even if that costs time
  // Tokens of the first windows, for settings whose windows go on across batches; absent: their initial window.
  std::optional<int64_t> window = std::nullopt;
};

// Beginning of a line's output: the new tokens so far.
struct TextStart {
  Prompt prompt;
  std::vector<int64_t> tokens;
  int64_t max_new_tokens = 0;
};

// Place of a token in the distribution that it must be drawn from.
struct TokenMass {
  double before = 0;  // probability of all tokens that are more likely, or equally likely with a lower id
  double own = 0;     // its own probability; 0: it should not have been drawn
};

// Depth of the decoder, and of the part of it that a setting reads early.
struct LayerDepth {
  int64_t layers = 0;  // layers of the decoder
  int64_t early = 0;   // first layers that draft (early-exit, exits as drafters) or predict early (ppd); 0: none
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Adds the problems of a setting: an unknown method, or parts and parameters that make no sense together.
  virtual void check(const Setting& run, Problems& problems) = 0;
  // Returns the token ids of a task's source line, with its suffix. Cuts sources longer than max_source_tokens and sets
  // `cut`; suffix and EOS are kept. Errors: UserError without `where` for ids outside the vocabulary, and for prompts
  // that leave no room for the new tokens.
  virtual Prompt encode(const std::string& source, const TaskOptions& task, bool& cut) const = 0;
  // Returns the ids of a reference in the form of an output, EOS included.
  virtual std::vector<int64_t> encode_reference(const std::string& reference, const TaskOptions& task) const = 0;
  // Returns the ids of the text that max_source_tokens cut off, with EOS unless the task's lines are ids. Empty for an
  // encoder-decoder, and if a suffix or an EOS ends the prompt.
  virtual std::vector<int64_t> encode_continuation(const std::string& source, const TaskOptions& task) const = 0;
  // Returns the text of generated ids. With `ids` it is the ids themselves without EOS, separated by blanks.
  virtual std::string text(const std::vector<int64_t>& generated, bool ids) const = 0;
  // Decodes the prompts as one batch. Each record has one repetition with the line's share of the batch's time. A line
  // whose logits are not finite has a failure instead of ids and counts; the other lines are as without it.
  virtual std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) = 0;
  // Returns how far each of `tokens` lies below the highest logit where the setting decides the next token: after its
  // processors, infinitely far for padding ids.
  virtual std::vector<double> logit_gaps(const Setting& run, const TextStart& start,
                                         std::span<const int64_t> tokens) = 0;
  // Returns the rounding error of the logits of the setting's model on given outputs (infer::logit_rounding()).
  virtual double logit_rounding(const Setting& run, std::span<const Prompt> prompts,
                                const std::vector<std::vector<int64_t>>& outputs) = 0;
  // Returns the places of first tokens, tokens[i] of prompts[i], in the distribution that the setting must sample them
  // from, one after the other.
  virtual std::vector<TokenMass> first_token_masses(const Setting& run, std::span<const Prompt> prompts,
                                                    const std::vector<std::vector<int64_t>>& tokens,
                                                    int64_t max_new_tokens) = 0;
  // Returns the step times of the setting's model and drafter, measured after half of `output`.
  virtual infer::StepCosts step_costs(const Setting& run, const Prompt& prompt, const std::vector<int64_t>& output,
                                      int64_t max_tokens) = 0;
  // Returns how well the setting's drafter predicts its model on `outputs`, at temperature 1.
  virtual infer::ForcedAlpha forced_alpha(const Setting& run, std::span<const Prompt> prompts,
                                          const std::vector<std::vector<int64_t>>& outputs) = 0;
  // Returns the depth of the setting's decoder, defaults applied; zeros if unknown.
  virtual LayerDepth depth(const Setting&) { return {}; }
  // Returns the work of lines that the setting decoded; nothing if its models' shapes are unknown.
  virtual std::optional<infer::DecodeWork> work(const Setting&, std::span<const infer::DecodedLine> /*lines*/) {
    return std::nullopt;
  }
  // The next two add the problems of tables that the models cannot give, at `where`.
  virtual void check(const MatchRateTable&, const std::string& /*where*/, Problems&) {}
  virtual void check(const EngagementTable&, const std::string& /*where*/, Problems&) {}
  virtual std::vector<infer::MatchRate> match_rates(const MatchRateTable&, std::span<const Prompt> /*prompts*/,
                                                    int64_t /*max_new_tokens*/) {
    return {};
  }
  // Decodes the prompts with the suite's model engaged where the question says.
  virtual infer::EngagedOutputs engage(const EngagementTable&, const infer::EngagementQuestion&,
                                       std::span<const Prompt> /*prompts*/) {
    return {};
  }
  // Returns number types, sizes, threads and directories, for results.json.
  virtual nlohmann::ordered_json description() const = 0;
  // Returns a text that differs for other models. Measurements of another fingerprint are not resumed.
  virtual std::string fingerprint() const = 0;
};

// Loads the models of the suite. Errors: UserError for wrong directories, vocabularies that differ, unknown devices.
std::unique_ptr<Engine> make_model_engine(const SuiteOptions& options);

}  // namespace draftsmith::evaluate
