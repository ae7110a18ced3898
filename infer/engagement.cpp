#include "infer/engagement.h"

#include <limits>
#include <memory>
#include <utility>

#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/drafter.h"
#include "infer/loop/decode_loop.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::infer {
namespace {

// The oracle as an acceptance rule of windows of one token. Each round adds exactly one token: the rule keeps no draft,
// but gives a token that stays as the next one. Thus the large model never adds a token of its own behind it.
class OracleEngagement final : public AcceptanceRule {
 public:
  // Adds to the counts of `outputs`, which must outlive the rule.
  OracleEngagement(double threshold, EngagedOutputs& outputs) : threshold_(threshold), outputs_(outputs) {}

  AcceptanceTraits traits() const override {
    return {.name = "oracle engagement", .lossless = false, .greedy_only = true};
  }

  Judgement judge(const Verification& in) override {
    const at::Tensor first = at::zeros_like(in.counts);  // [B]
    const at::Tensor own = target_token(in, first);      // [B] the large model's
    at::Tensor next = own;
    at::Tensor stays = at::zeros_like(in.counts, in.counts.options().dtype(at::kBool));
    if (in.tokens.size(1) > 0) {
      const at::Tensor logits = in.logits.narrow(1, 0, 1);                                                  // [B,1,V]
      const at::Tensor p = token_log_probability(logits, in.tokens.narrow(1, 0, 1)).exp().to(at::kDouble);  // [B,1]
      stays = in.counts.gt(0) & p.squeeze(1).ge(threshold_);
      next = at::where(stays, in.tokens.select(1, 0), own);
    }
    const std::vector<int64_t> kept = to_host(stays);
    std::vector<int64_t> others(kept.size(), 0);  // 1: the models choose differently
    if (in.tokens.size(1) > 0) others = to_host(in.counts.gt(0) & in.tokens.select(1, 0).ne(own));
    for (size_t b = 0; b < kept.size(); ++b) {
      if (in.rows[b].finished || kept[b] != 0) continue;
      ++outputs_.engaged;
      *outputs_.changed += others[b];
    }
    return {.accepted = first, .next = next};
  }

 private:
  double threshold_;
  EngagedOutputs& outputs_;
};

DecodeOptions greedy_options(const EngagementQuestion& question) {
  DecodeOptions options;
  options.method = "bild";
  options.temperature = 0;
  options.max_new_tokens = question.max_new_tokens;
  options.batch_size = question.batch_size;
  return options;
}

DraftParts parts_of(const GenerationModels& models, const EngagementQuestion& question, EngagedOutputs& outputs) {
  auto drafter = models.drafter->make(models.draft_target());
  if (question.policy == EngagementPolicy::kOracle) {
    return {std::move(drafter), std::make_unique<FixedWindow>(1),
            std::make_unique<OracleEngagement>(question.threshold, outputs)};
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  return {std::move(drafter), std::make_unique<FallbackWindow>(question.threshold, question.max_new_tokens),
          std::make_unique<RollbackAcceptance>(kNever, RollbackRule::kEffective)};
}

}  // namespace

const NamedValues<EngagementPolicy>& engagement_policies() {
  static const NamedValues<EngagementPolicy> kPolicies(
      "engagement policy", {{"oracle", EngagementPolicy::kOracle}, {"fallback", EngagementPolicy::kFallback}});
  return kPolicies;
}

void check_engagement(const GenerationModels& models, const std::string& where, Problems& problems) {
  Problems found;
  models.drafter->check(models.draft_target(), found);
  problems.add_all(found.list(), where + ", ");
  if (!found.list().empty() || models.drafter->make(models.draft_target())->traits().logits) return;
  problems.add({where, "the large model is engaged by probabilities, and this drafter only proposes tokens",
                "a model, an n-gram table or an exit as drafter", models.drafter->name(), ""});
}

EngagedOutputs engage(const GenerationModels& models, const EngagementQuestion& question,
                      std::span<const std::vector<int64_t>> prompts) {
  EngagedOutputs outputs;
  const bool oracle = question.policy == EngagementPolicy::kOracle;
  if (oracle) outputs.changed = 0;
  auto results = Generator(models, greedy_options(question), parts_of(models, question, outputs)).generate(prompts);
  throw_if_failed(results);
  for (GenerationResult& result : results) {
    outputs.tokens += std::ssize(result.ids);
    // Each verification adds a token of the large model, but not behind the end of a verified draft.
    const infer::DecodeStats& stats = result.stats;
    if (!oracle) outputs.engaged += stats.verifications - (stats.cut > 0 && stats.unverified == 0 ? 1 : 0);
    outputs.ids.push_back(std::move(result.ids));
  }
  return outputs;
}

}  // namespace draftsmith::infer
