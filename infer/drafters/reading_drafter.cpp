#include "infer/drafters/reading_drafter.h"

#include "data/tokenizers/tokenizer.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

ReadingDrafter::ReadingDrafter(std::shared_ptr<model::TransformerModel> drafter, const data::Tokenizer* tokenizer)
    : drafter_(std::move(drafter)), tokenizer_(tokenizer) {}

ReadingDrafter::ReadingDrafter(std::shared_ptr<model::TransformerModel> drafter, std::filesystem::path directory)
    : drafter_(std::move(drafter)), directory_(std::move(directory)) {
  if (!data::has_tokenizer(directory_)) return;
  owned_tokenizer_ = data::load_tokenizer(directory_);
  tokenizer_ = owned_tokenizer_.get();
}

ReadingDrafter::~ReadingDrafter() = default;

void ReadingDrafter::check(const DraftTarget& target, Problems& problems) const {
  const auto* owner = dynamic_cast<const model::TransformerModel*>(&target.model);
  if (owner == nullptr) {
    problems.add({"drafter " + name(), "this drafter reads states of the model that it was trained with",
                  "that model, a transformer, as the one that decodes", target.model.info().name, ""});
    return;
  }
  try {
    require_pair(owner->config(), {name(), target.model.info().name});
  } catch (const UserError& error) {
    problems.add_all(error.problems());
  }
  compare_vocabularies(target.model.info(), drafter_->info(), target.tokenizer, tokenizer_, problems);
}

}  // namespace draftsmith::infer
