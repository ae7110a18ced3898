// Generation with any decoding method: sources in, token ids and statistics out. What `generate`, evaluation, teacher
// outputs and validation call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "infer/acceptance/acceptance_rule.h"
#include "infer/decode_options.h"
#include "infer/drafters/drafter.h"
#include "infer/load_models.h"
#include "infer/loop/decode_stats.h"
#include "infer/loop/rows.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

struct DecodeSettings;  // infer/loop/processors.h
struct DraftParts;      // infer/loop/decode_loop.h

// Makes the parts of a method that drafts, around a drafter. Errors: UserError for an unknown name of a rule, or if the
// window rule asks a router or a record of accepted lengths and `models` has none.
DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter,
                      const GenerationModels& models = {});

// The properties of parts that decide whether they belong together.
struct PartTraits {
  DrafterTraits drafter;
  WindowTraits window;
  AcceptanceTraits acceptance;
  int64_t lookup = 0;  // DecodeOptions::copied_behind()
};

// Reports each pair of parts that makes no sense; `temperature` 0 is greedy decoding.
void validate_parts(const PartTraits& parts, double temperature, Problems& problems);

struct GenerationResult {
  std::vector<int64_t> ids;  // new tokens only: no start token, no prompt; EOS included
  DecodeStats stats;
  std::optional<Problem> error = {};  // the logits were no numbers: there are no ids; `where` names the input line
};

// Throws a RunError for the first result with an error.
void throw_if_failed(std::span<const GenerationResult> results);

class Generator {
 public:
  // Throws UserError for options out of range, a missing drafter, parts that don't fit together, vocabularies that
  // differ, and generation settings that are not supported.
  Generator(GenerationModels models, DecodeOptions options);
  // With parts of the caller's own instead of the method's.
  Generator(GenerationModels models, DecodeOptions options, DraftParts parts);
  ~Generator();
  Generator(Generator&&) noexcept;

  // Called with (index of the first result, results) whenever the results of further sources are complete, in order.
  using OnResults = std::function<void(size_t first, std::span<const GenerationResult> results)>;

  // Sources (encoder-decoder: ids for the encoder, EOS included where the family wants it; decoder-only: prompts) to
  // num_samples consecutive results each, in the order of the sources. Sources are batched by length;
  // results do not depend on the batching but for rounding. `first_line` is the first source's index in the random
  // streams and in messages. A prompt that is skipped has results without tokens. An output whose logits are not finite
  // numbers has an error and no tokens; the other outputs go on. `on_tokens` hears of tokens as they are committed,
  // rows of a batch in turns; of skipped prompts first, that they ended. Its own time counts as kOther. Throws what
  // fit() throws, before anything is decoded.
  std::vector<GenerationResult> generate(std::span<const std::vector<int64_t>> sources, uint64_t first_line = 0,
                                         const OnResults& on_results = {}, const OnTokens& on_tokens = {});

  // How each source fits the context (Prompts::fit()). Throws UserError for an id outside the
  // vocabulary, an empty prompt where the model has no first token, and a prompt too long under long_prompts = error.
  std::vector<PromptFit> fit(std::span<const std::vector<int64_t>> sources, uint64_t first_line = 0) const;

  const DecodeOptions& options() const;
  // Returns the padding mask, processors and warping of every position.
  const DecodeSettings& settings() const;

  // The schedule `heuristic` goes on across batches: the tokens of the next batch's first windows. nullopt: the method
  // remembers no batch, or it has seen none. Where outputs depend on windows the setter has no effect.
  std::optional<int64_t> carried_window() const;
  void carry_window(std::optional<int64_t> window);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Sum of all results' statistics.
DecodeStats total(std::span<const GenerationResult> results);

}  // namespace draftsmith::infer
