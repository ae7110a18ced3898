#include "infer/traced_output.h"

#include <algorithm>

#include "infer/drafters/early_exit_drafter.h"
#include "infer/generator.h"
#include "infer/parts.h"
#include "infer/self_drafting/methods.h"

namespace draftsmith::infer {

AcceptanceTraits TracingRule::traits() const {
  AcceptanceTraits traits = rule_->traits();
  traits.on_device = false;
  return traits;
}

Judgement TracingRule::judge(const Verification& verification) {
  Judgement judgement = rule_->judge(verification);
  const auto drafted = static_cast<size_t>(to_host(verification.counts).front());
  JudgedDraft& note = notes_.emplace_back();
  note.position = verification.rows.front().emitted();
  note.tokens = to_host(verification.tokens);
  note.tokens.resize(std::min(drafted, note.tokens.size()));
  note.accepted = to_host(judgement.accepted).front();
  return judgement;
}

std::vector<TracedToken> traced_tokens(std::span<const int64_t> output, std::span<const JudgedDraft> drafts,
                                       int64_t unverified) {
  const auto length = std::ssize(output);
  std::vector<TracedToken> traced;
  int64_t written = 0;
  const auto write = [&](int64_t count, TokenOrigin origin) {
    for (const int64_t end = std::min(length, written + count); written < end; ++written) {
      traced.push_back({output[static_cast<size_t>(written)], origin});
    }
  };
  for (const JudgedDraft& draft : drafts) {
    write(draft.position - written, TokenOrigin::kTarget);  // a prompt's run writes the first token
    write(draft.accepted, TokenOrigin::kDrafted);
    if (written == length) break;  // an accepted EOS: what was drafted behind it was never looked at
    for (int64_t i = draft.accepted; i < std::ssize(draft.tokens); ++i) {
      traced.push_back({draft.tokens[static_cast<size_t>(i)], TokenOrigin::kRejected});
    }
    write(1, TokenOrigin::kTarget);
  }
  write(length - written - unverified, TokenOrigin::kTarget);
  write(length - written, TokenOrigin::kUnverified);
  return traced;
}

std::vector<TracedToken> trace_output(GenerationModels models, DecodeOptions options,
                                      const std::vector<int64_t>& source, uint64_t line) {
  if (!options.drafts() || acceptance_traits(options).target != TargetRole::kVerifies) return {};
  options.num_samples = 1;
  options.batch_size = 1;
  options.measure_alpha = false;
  if (options.drafts_inside()) models.drafter = exit_drafter(exit_layer_of(options, models.exits));
  DraftParts parts = make_parts(options, models.drafter->make(models.draft_target()), models);
  std::vector<JudgedDraft> drafts;
  parts.acceptance = std::make_unique<TracingRule>(std::move(parts.acceptance), drafts);
  Generator generator(models, std::move(options), std::move(parts));
  const GenerationResult result = generator.generate(std::span(&source, 1), line).front();
  if (result.error) return {};
  return traced_tokens(result.ids, drafts, result.stats.unverified);
}

}  // namespace draftsmith::infer
