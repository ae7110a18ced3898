#include "infer/make_drafter.h"

#include "data/ngrams/ngram_table.h"
#include "infer/drafters/early_exit_drafter.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/ngram_drafter.h"
#include "infer/drafters/prompt_lookup_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/inside_methods.h"
#include "infer/loop/vocabulary.h"
#include "model/kinds/tandem.h"

namespace draftsmith::infer {

namespace {

void check_model(const GenerationModels& models, Problems& problems) {
  const model::ModelInfo& target = models.target->info();
  const model::ModelInfo& drafter = models.drafter->info();
  if (target.encoder_decoder != drafter.encoder_decoder) {
    const auto kind = [](const model::ModelInfo& info) {
      return info.encoder_decoder ? "encoder-decoder" : "decoder-only";
    };
    problems.add({"drafter " + drafter.name, "drafter and target are models of different kinds", kind(target),
                  kind(drafter), "use a drafter of the target's kind"});
  }
  compare_vocabularies(target, drafter, models.target_tokenizer, models.drafter_tokenizer, problems);
}

// A table has no pieces to compare, only its tokenizer's hash.
void check_table(const GenerationModels& models, Problems& problems) {
  const data::NgramInfo& table = models.ngrams->info();
  const std::string where = "drafter " + models.ngrams->file().string();
  const std::string hint = "make the table from a corpus of the target's tokenizer, with `draftsmith data ngrams`";
  if (models.target_tokenizer != nullptr && models.target_tokenizer->hash() != table.tokenizer_hash) {
    problems.add({where, "the n-gram table was made with another tokenizer than the target's",
                  "tokenizer " + models.target_tokenizer->hash().substr(0, 16),
                  "tokenizer " + table.tokenizer_hash.substr(0, 16), hint});
  } else if (table.vocabulary > models.target->info().vocabulary) {
    problems.add({where, "the n-gram table has more token ids than the target",
                  "at most " + std::to_string(models.target->info().vocabulary), std::to_string(table.vocabulary),
                  hint});
  }
}

// Without directories to compare, only shapes and vocabularies tell another primary.
void check_tandem(const GenerationModels& models, Problems& problems) {
  const model::ModelInfo& target = models.target->info();
  const model::ModelInfo& secondary = models.tandem->info();
  const auto* primary = dynamic_cast<const model::TransformerModel*>(models.target);
  if (primary == nullptr) {
    problems.add({"drafter " + secondary.name, "a Tandem secondary reads the hidden states of its primary",
                  "its primary as the model that decodes", target.name, ""});
    return;
  }
  try {
    model::require_tandem_pair(models.tandem->config(), primary->config(), {secondary.name, target.name});
  } catch (const UserError& error) {
    for (const Problem& problem : error.problems()) problems.add(problem);
  }
}

}  // namespace

void check_drafter(const GenerationModels& models, const std::string& method, Problems& problems) {
  if (models.tandem != nullptr) return check_tandem(models, problems);
  if (method.starts_with("tandem")) {
    problems.add({"method " + method, "this method's drafter is a Tandem secondary of the model",
                  "the directory of a Tandem secondary (DraftsmithTandem in its config.json)",
                  "another drafter or none",
                  "train one with a recipe, or use the method speculative, assisted or bild"});
    return;
  }
  if (models.exit_layer > 0) return check_exit_layer(models, problems);
  if (models.ngrams != nullptr) return check_table(models, problems);
  if (models.lookup > 0) return;
  if (models.drafter != nullptr) return check_model(models, problems);
  problems.add({"method " + method, "this method needs a drafter", "a drafter", "none",
                "give one with --drafter, or use the method greedy or sample"});
}

std::unique_ptr<Drafter> make_drafter(const GenerationModels& models) {
  const model::ModelInfo& target = models.target->info();
  if (models.tandem != nullptr) return std::make_unique<TandemDrafter>(*models.tandem);
  if (models.exit_layer > 0) {
    return std::make_unique<EarlyExitDrafter>(inside_model(models), models.exit_layer, models.exits);
  }
  if (models.ngrams != nullptr) {
    return std::make_unique<NgramDrafter>(models.ngrams->counts(), target.vocabulary, target.device);
  }
  if (models.lookup > 0) return std::make_unique<PromptLookupDrafter>(models.lookup);
  return std::make_unique<ModelDrafter>(*models.drafter, target.vocabulary);
}

}  // namespace draftsmith::infer
