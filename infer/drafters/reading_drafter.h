// A loaded drafter that reads states of its target: a Tandem secondary, or a drafter that shares the target's encoder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "infer/drafters/loaded_drafter.h"
#include "model/kinds/companion.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

class ReadingDrafter : public LoadedDrafter {
 public:
  // Without a tokenizer, the drafter's vocabulary must be as large as the target's.
  ReadingDrafter(std::shared_ptr<model::TransformerModel> drafter, const data::Tokenizer* tokenizer);
  // Reads the tokenizer of the directory, if there is one.
  ReadingDrafter(std::shared_ptr<model::TransformerModel> drafter, std::filesystem::path directory);
  ~ReadingDrafter() override;

  std::string name() const override { return drafter_->info().name; }
  std::filesystem::path path() const override { return directory_; }
  model::LanguageModel* model() const override { return drafter_.get(); }

  // Reports a problem for a target that is no transformer, one that does not fit, and another vocabulary. Without
  // directories to compare, only shapes and vocabularies can show that the target is another one.
  void check(const DraftTarget& target, Problems& problems) const override;

 protected:
  // Refuses a target that the drafter cannot read. Errors: UserError with both names.
  virtual void require_pair(const model::TransformerConfig& target, const model::PairNames& names) const = 0;

  model::TransformerModel& drafter() const { return *drafter_; }

 private:
  std::shared_ptr<model::TransformerModel> drafter_;
  std::filesystem::path directory_;
  std::unique_ptr<data::Tokenizer> owned_tokenizer_;
  const data::Tokenizer* tokenizer_ = nullptr;  // nullptr: only the numbers of token ids are compared
};

}  // namespace draftsmith::infer
