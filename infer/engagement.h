// Engagement of the large model (Kim et al. 2023, BiLD, section 3.1 and figure 2): outputs of a small model with some
// of its tokens decided by the large one, and how many those are. With y the small model's most likely token and p the
// large model's distribution, after processors, at temperature 1, the oracle's next token is y if p(y) >= threshold,
// else argmax p: the large model decides. The oracle runs both models for every token, so it bounds rules that do not
// know p, as fallback (section 3.3): the large model decides where max q < threshold, q the small model's distribution.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/registry.h"
#include "infer/generator.h"

namespace draftsmith::infer {

enum class EngagementPolicy { kOracle, kFallback };

// Returns their names in options and results: "oracle", "fallback".
const NamedValues<EngagementPolicy>& engagement_policies();

struct EngagementQuestion {
  EngagementPolicy policy = EngagementPolicy::kOracle;
  double threshold = 0;  // a probability; at most 0: the small model alone; above 1: the large one alone
  int64_t max_new_tokens = 128;
  int64_t batch_size = 16;
};

struct EngagedOutputs {
  std::vector<std::vector<int64_t>> ids;  // new tokens of each prompt, EOS included
  int64_t tokens = 0;                     // of all outputs
  int64_t engaged = 0;                    // tokens that the large model decided
  std::optional<int64_t> changed = {};    // oracle: decided tokens that are others than the small model's
};

// Reports a problem at `where` if the drafter does not fit the target, or has no probabilities (prompt look-up).
void check_engagement(const GenerationModels& models, const std::string& where, Problems& problems);

// Decodes the prompts greedily. Of `models` the drafter is the small model and the target the large one; any drafter
// will do that check_engagement() finds no problem with. Errors: RunError if a model's logits are no numbers.
EngagedOutputs engage(const GenerationModels& models, const EngagementQuestion& question,
                      std::span<const std::vector<int64_t>> prompts);

}  // namespace draftsmith::infer
