// The drafter `model`, a small language model with its own decode state; it may be the target itself. Also the drafter
// that shares its target's encoder, and loaded drafters that read states of their target.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizers/tokenizer.h"
#include "infer/drafters/drafter.h"
#include "model/models/companion.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {
struct LoadOptions;  // model/files/model_directory.h
}

namespace draftsmith::infer {

class ModelDrafter : public Drafter {
 public:
  // `vocabulary` is the target's. A drafter with fewer ids gives the missing ones no probability and reads them as
  // padding; a drafter with more ids (padding) loses them. The model must outlive the drafter.
  ModelDrafter(model::LanguageModel& model, int64_t vocabulary) : ModelDrafter(model, vocabulary, true) {}
  ~ModelDrafter() override { model_.give_back(std::move(state_)); }

  DrafterTraits traits() const override { return traits_of(DrafterKind::kModel); }
  void encode(const DraftBegin& begin) override;
  void prefill(const DraftBegin& begin) override;
  at::Tensor next_logits(const DraftRequest& request) override;
  StepTokens step_tokens(const DraftRequest& request, size_t row) const override;
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;
  int64_t room(const Row& row) const override { return positions_left(model_.info(), row, reads_sources_); }
  std::optional<DraftingModel> drafting_model() override { return DraftingModel{model_, *state_}; }

 protected:
  // `reads_sources`: the model has an encoder of its own.
  ModelDrafter(model::LanguageModel& model, int64_t vocabulary, bool reads_sources)
      : model_(model), vocabulary_(vocabulary), reads_sources_(reads_sources) {}

  model::EncoderStates encoder_;  // that prefill() begins from

 private:
  model::StepInput unseen_tokens(const DraftRequest& request) const;

  model::LanguageModel& model_;
  int64_t vocabulary_;
  bool reads_sources_;
  std::unique_ptr<model::DecodeState> state_;
};

// Loads the ordinary model in a directory, with its tokenizer and its settings. Errors: those of
// load_model_directory().
SharedDrafter load_model_drafter(const std::filesystem::path& directory, const model::LoadOptions& options,
                                 const data::Languages& languages = {});

// Makes a drafter of a model that the caller owns. `directory`: where the model was loaded from; empty: nowhere.
SharedDrafter as_drafter(model::LanguageModel& model, const data::Tokenizer* tokenizer = nullptr,
                         std::filesystem::path directory = {});

// A loaded drafter that reads states of its target: a Tandem secondary, or a drafter that shares the target's encoder.
class ReadingDrafter : public LoadedDrafter {
 public:
  // Without a tokenizer, here or in the directory that it was loaded from (empty: nowhere), the drafter's vocabulary
  // must be as large as the target's.
  ReadingDrafter(std::shared_ptr<model::TransformerModel> drafter, const data::Tokenizer* tokenizer,
                 std::filesystem::path directory);

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

// Makes a drafter of a model that shares an encoder (model/models/shared_encoder.h); arguments as in ReadingDrafter.
SharedDrafter shared_encoder_drafter(std::shared_ptr<model::TransformerModel> drafter,
                                     const data::Tokenizer* tokenizer = nullptr, std::filesystem::path directory = {});

}  // namespace draftsmith::infer
