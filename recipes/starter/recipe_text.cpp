// The text of a recipe for a drafter.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/toml.h"
#include "recipes/starter/starter.h"

namespace draftsmith::recipes {

namespace {

std::string absolute_path(const std::filesystem::path& path) {
  return toml_quoted(std::filesystem::canonical(path).string());
}

// Returns "3 minutes", as a comment of a stage.
std::string minutes_text(double seconds) {
  return seconds < 60 ? fmt::format("{:.0f} seconds", std::max(1.0, seconds))
                      : fmt::format("{:.0f} minutes", seconds / 60);
}

std::string head(const Target& target, const StarterPlan& plan, const StarterOptions& options) {
  const Candidate& drafter = *plan.chosen;
  std::string speedups;
  for (const double alpha : {0.5, 0.6, 0.7, 0.8}) {
    speedups += fmt::format("{} {:.2f} at {:g}", speedups.empty() ? "" : ",", drafter.speedup(alpha), alpha);
  }
  return fmt::format(
      "# draftsmith train {0}\n#\n"
      "# A drafter for {1}, written by `draftsmith new`. The target answers {2} prompts, and the drafter, {3} of the\n"
      "# target's {4} decoder layers, learns the answers. {5} other prompts, which no training sees, measure it.\n#\n"
      "# A drafter's step takes {6:.2f} of the target's here, so theory expects a speedup, by the share of accepted\n"
      "# drafts (alpha), of{7}. Takes about {8} on this machine.\n\n"
      "name = {9}\n\n",
      options.out.filename().string(), options.target.string(), plan.prompts, drafter.layers,
      target.config.decoder_layers, plan.held_out, drafter.costs.cost_ratio(), speedups,
      minutes_text(plan.prompts_seconds + plan.answers_seconds + plan.training_seconds + plan.evaluation_seconds),
      toml_quoted(options.out.stem().string()));
}

std::string prompts_stage(const Target& target, const StarterPlan& plan, const StarterOptions& options) {
  std::string text = target.writes_prompts()
                         ? fmt::format("[prompts]  # about {}\nkind = \"prompts\"  # the target writes them itself\n",
                                       minutes_text(plan.prompts_seconds))
                         : "[prompts]\nkind = \"prompts\"  # different lines of the text\n";
  text += fmt::format("model = {}\n", absolute_path(options.target));
  if (!options.text.empty()) {
    std::vector<std::string> files;
    for (const auto& file : options.text) files.push_back(absolute_path(file));
    text += fmt::format("text = [{}]\n", fmt::join(files, ", "));
  }
  if (target.form == PromptForm::kChat) text += "chat = true\n";
  if (target.form != PromptForm::kBeginnings) text += fmt::format("max_tokens = {}\n", target.prompt_tokens);
  return text + fmt::format("count = {}\nheld_out = {}\n\n", plan.prompts, plan.held_out);
}

std::string corpus_stage(const Target& target, const StarterOptions& options) {
  std::string text = fmt::format(
      "[questions]\nkind = \"corpus\"  # the prompts as tokens; \"-\" stands where the answers will be\n"
      "tokenizer = {}\njsonl = \"@prompts/train.jsonl\"\n",
      absolute_path(options.target));
  if (target.form == PromptForm::kChat) return text + "messages = \"messages\"\n\n";
  if (target.form == PromptForm::kBeginnings) return text + "source_field = \"\"\ntarget_fields = [\"source\"]\n\n";
  return text + (target.config.encoder_decoder ? "\n" : "prompts = true\n\n");
}

std::string answers_stage(const Target& target, const StarterPlan& plan, const StarterOptions& options) {
  const bool half = options.dtype == "bf16" || options.dtype == "fp16";
  return fmt::format(
      "[answers]  # about {}\nkind = \"teacher-outputs\"  # the target's own greedy outputs\n"
      "model = {}\ncorpus = \"@questions/corpus.h5\"\nmax_new_tokens = {}\nbatch_size = {}\n{}{}\n",
      minutes_text(plan.answers_seconds), absolute_path(options.target), target.max_new_tokens, kBatch,
      target.form == PromptForm::kBeginnings ? fmt::format("prompt_tokens = {}\n", target.prompt_tokens) : "",
      half ? fmt::format("dtype = \"{}\"\n", options.dtype) : "");
}

std::string pruned_stage(const StarterPlan& plan, const StarterOptions& options) {
  const Candidate& drafter = *plan.chosen;
  std::string text = fmt::format("[pruned]\nkind = \"prune\"\nmodel = {}\ndecoder_layers = \"{}\"\n",
                                 absolute_path(options.target), drafter.decoder_layers);
  if (!drafter.encoder_layers.empty()) text += fmt::format("encoder_layers = \"{}\"\n", drafter.encoder_layers);
  if (drafter.vocabulary > 0) {
    text += fmt::format("vocabulary_from = \"@answers/corpus.h5\"\nvocabulary_size = {}\n", drafter.vocabulary);
  }
  return text + "\n";
}

// Returns the groups of T5's parameters: scores are not scaled, so queries learn at lr / sqrt(head_width).
std::string optimizer_groups(const model::TransformerConfig& config) {
  std::string text = fmt::format(
      "groups = [  # T5's scores are not scaled: queries learn at lr / sqrt(head_width)\n"
      "  {{ parameters = \"*.query.weight\", lr_factor = {:.3f} }},\n"
      "  {{ parameters = \"embedding.weight\", lr_factor = 3.0 }},\n",
      1 / std::sqrt(static_cast<double>(config.head_width)));
  if (!config.tied_head) text += "  { parameters = \"head.weight\", lr_factor = 3.0 },\n";
  return text + "]\n";
}

std::string drafter_stage(const Target& target, const StarterPlan& plan, const StarterOptions& options) {
  const TrainingDefaults& defaults = training_defaults(target.config);
  return fmt::format(
             "[drafter]  # about {}\nkind = \"train\"\nfrom = \"@pruned/model\"\n"
             "corpus = \"@answers/corpus.h5\"\ntokenizer = {}\n\n"
             "[drafter.training]\nlength = \"{} epochs\"\nkeep = \"last\"\nprecision = \"auto\"\n"
             "batches = {{ token_budget = {} }}\nschedule = {{ name = \"linear\", warmup = \"5 %\" }}\n\n"
             "[drafter.training.optimizer]  # {}\nname = \"adamw\"\nlr = {:g}\n",
             minutes_text(plan.training_seconds), absolute_path(options.target), kEpochs, defaults.token_budget,
             defaults.source, defaults.lr) +
         (defaults.scaled_attention ? "" : optimizer_groups(target.config)) + "\n";
}

std::string evaluation_stage(const Target& target, const StarterPlan& plan, const StarterOptions& options) {
  std::string source = "source = \"@prompts/held_out.txt\"\n";
  if (target.form == PromptForm::kChat) source += "chat = true\n";
  if (target.form == PromptForm::kBeginnings) source += fmt::format("max_source_tokens = {}\n", target.prompt_tokens);
  return fmt::format(
      "[evaluation]  # about {}\nkind = \"evaluate\"\nmodel = {}\nmax_new_tokens = {}\ndtype = \"{}\"\n"
      "precision = 0.03     # rows this precise are timed no more\n"
      "repetitions = 100    # rounds at most\nmax_minutes = {:.3g}\n"
      "drafter = [{{ name = \"drafter\", model = \"@drafter/model\" }}, {{ name = \"lookup\", lookup = true }}]\n\n"
      "[[evaluation.task]]\nname = \"held-out\"\n{}metric = {{ name = \"none\" }}\n\n"
      "[[evaluation.run]]\nmethod = \"assisted\"\ndrafter = [\"drafter\", \"lookup\"]\n\n"
      "[[evaluation.run]]\nmethod = \"speculative\"\ndrafter = [\"drafter\"]\ntemperature = 0\nwindow = {}\n\n",
      minutes_text(plan.evaluation_seconds), absolute_path(options.target), target.max_new_tokens, options.dtype,
      plan.timing_minutes, source, std::max<int64_t>(1, plan.chosen->window(plan.chosen->alpha)));
}

std::string verdict_stage(const StarterPlan& plan, const StarterOptions& options) {
  return fmt::format(
      "[verdict]\nkind = \"verdict\"  # is it worth it? If so, the drafter is exported\n"
      "evaluation = \"@evaluation/results.json\"\ndrafter = \"@drafter/model\"\ntarget = {}\nformat = \"{}\"\n",
      absolute_path(options.target), plan.chosen->vocabulary > 0 ? "none" : options.format);
}

}  // namespace

std::string recipe_text(const Target& target, const StarterPlan& plan, const StarterOptions& options) {
  return head(target, plan, options) + prompts_stage(target, plan, options) + corpus_stage(target, options) +
         answers_stage(target, plan, options) + pruned_stage(plan, options) + drafter_stage(target, plan, options) +
         evaluation_stage(target, plan, options) + verdict_stage(plan, options);
}

}  // namespace draftsmith::recipes
