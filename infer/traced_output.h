// Decoding of one output that tells where each token is from: a draft that the target kept, the target itself, or a
// draft that was taken back (Kim et al. 2023, figure 9).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/decode_options.h"
#include "infer/load_models.h"

namespace draftsmith::infer {

enum class TokenOrigin {
  kDrafted,     // drafted, and kept by the target
  kUnverified,  // drafted at the end of an output that the target did not judge (BiLD)
  kTarget,      // the target's own
  kRejected,    // drafted and taken back: no token of the output
};

struct TracedToken {
  int64_t id = 0;
  TokenOrigin origin = TokenOrigin::kTarget;
};

// Draft that the target judged.
struct JudgedDraft {
  int64_t position = 0;  // new tokens of the output before it
  std::vector<int64_t> tokens;
  int64_t accepted = 0;  // tokens of it that were kept
};

// Acceptance rule that notes the drafts of one row that another rule judges, and what it decides.
class TracingRule : public AcceptanceRule {
 public:
  // The notes must outlive the rule.
  TracingRule(std::unique_ptr<AcceptanceRule> rule, std::vector<JudgedDraft>& notes)
      : rule_(std::move(rule)), notes_(notes) {}
  // Returns the rule's traits, but for judging on the device, where no notes can be taken.
  AcceptanceTraits traits() const override;
  Judgement judge(const Verification& verification) override;

 private:
  std::unique_ptr<AcceptanceRule> rule_;
  std::vector<JudgedDraft>& notes_;
};

// Returns the tokens of an output and those taken back, in the order in which they were written. `drafts` are in the
// order of their positions. The last `unverified` tokens were drafted and not judged; other tokens outside the drafts
// are the target's.
std::vector<TracedToken> traced_tokens(std::span<const int64_t> output, std::span<const JudgedDraft> drafts,
                                       int64_t unverified = 0);

// Decodes one source (as Generator::generate() takes them) with the index `line` in the random streams. Returns nothing
// for methods whose target verifies no drafts, and for an output without finite logits. Windows that go on across texts
// begin anew.
std::vector<TracedToken> trace_output(GenerationModels models, DecodeOptions options,
                                      const std::vector<int64_t>& source, uint64_t line);

}  // namespace draftsmith::infer
