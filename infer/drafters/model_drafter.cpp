#include "infer/drafters/model_drafter.h"

#include <algorithm>

#include "base/device_tensors.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/costs/step_costs.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/load_models.h"
#include "infer/loop/prefill.h"
#include "infer/loop/processors.h"
#include "model/files/checkpoint.h"
#include "model/models/companion.h"
#include "model/models/shared_encoder.h"

namespace draftsmith::infer {
namespace {

class LoadedModelDrafter : public LoadedDrafter {
 public:
  LoadedModelDrafter(model::LanguageModel& model, const data::Tokenizer* tokenizer, std::filesystem::path directory)
      : model_(model), tokenizer_(tokenizer), directory_(std::move(directory)) {}

  std::string name() const override { return model_.info().name; }
  std::filesystem::path path() const override { return directory_; }
  model::LanguageModel* model() const override { return &model_; }

  void check(const DraftTarget& draft_target, Problems& problems) const override {
    const model::ModelInfo& target = draft_target.model.info();
    const model::ModelInfo& drafter = model_.info();
    if (target.encoder_decoder != drafter.encoder_decoder) {
      const auto kind = [](const model::ModelInfo& info) {
        return info.encoder_decoder ? "encoder-decoder" : "decoder-only";
      };
      problems.add({"drafter " + name(), "drafter and target are models of different kinds", kind(target),
                    kind(drafter), "use a drafter of the target's kind"});
    }
    compare_vocabularies(target, drafter, draft_target.tokenizer, tokenizer_, problems);
  }

  std::unique_ptr<Drafter> make(const DraftTarget& target) const override {
    return std::make_unique<ModelDrafter>(model_, target.model.info().vocabulary);
  }

  StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context,
                       int64_t max_tokens) const override {
    return measure_step_costs(target.model, model_, context, max_tokens);
  }

  ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                           int64_t /*block*/) const override {
    return measure_forced_alpha({target.model, model_}, texts.sources, texts.outputs, warping);
  }

 private:
  model::LanguageModel& model_;
  const data::Tokenizer* tokenizer_;
  std::filesystem::path directory_;
};

// A model directory's drafter, which owns what was loaded.
class OwnedModelDrafter final : public LoadedModelDrafter {
 public:
  explicit OwnedModelDrafter(LoadedModel loaded)
      : LoadedModelDrafter(*loaded.model, loaded.tokenizer.get(), loaded.directory), loaded_(std::move(loaded)) {}

  const LoadedModel* standalone() const override { return &loaded_; }

 private:
  LoadedModel loaded_;
};

}  // namespace

// Replaces ids that the drafter has no embedding for by padding.
at::Tensor ModelDrafter::mask_unknown(const at::Tensor& tokens) const {
  return known_tokens(tokens, model_.info(), vocabulary_);
}

void ModelDrafter::encode(const DraftBegin& begin) {
  if (!model_.info().encoder_decoder) return;
  encoder_ = model_.encode({mask_unknown(begin.sources.tokens.to(model_.info().device)), begin.sources.lengths});
}

void ModelDrafter::prefill(const DraftBegin& begin) {
  model_.give_back(std::move(state_));
  const StateSize size{begin.capacity, begin.samples};
  if (model_.info().encoder_decoder || model_.info().vocabulary >= vocabulary_) {
    state_ = begin_state(model_, encoder_, begin.rows, size);
  } else {
    std::vector<Row> prompts(begin.rows.size());
    for (size_t b = 0; b < prompts.size(); ++b) {
      prompts[b].tokens = mask_unknown_ids(model_.info(), {&begin.rows[b].tokens, 1}).front();
    }
    state_ = begin_state(model_, encoder_, prompts, size);
  }
  encoder_ = {};
}

// Returns the committed tokens that the state has not processed: one, or two after a full acceptance.
model::StepInput ModelDrafter::unseen_tokens(const DraftRequest& request) const {
  model::StepInput input;
  input.logits = model::Logits::kLast;
  int64_t width = 1;
  for (size_t b = 0; b < request.rows.size(); ++b) {
    const int64_t unseen = request.rows[b].length() - state_->length(static_cast<int64_t>(b));
    input.new_tokens.push_back(request.active[b] != 0 ? unseen : 0);
    width = std::max(width, input.new_tokens.back());
  }
  std::vector<int64_t> tokens(request.rows.size() * static_cast<size_t>(width), model_.info().pad);
  for (size_t b = 0; b < request.rows.size(); ++b) {
    const auto& row = request.rows[b].tokens;
    std::copy(row.end() - input.new_tokens[b], row.end(), tokens.begin() + static_cast<int64_t>(b) * width);
  }
  input.tokens = to_device(tokens, {static_cast<int64_t>(request.rows.size()), width}, model_.info().device);
  return input;
}

at::Tensor ModelDrafter::next_logits(const DraftRequest& request) {
  model::StepInput input;
  if (request.drafted.empty()) {
    input = unseen_tokens(request);
  } else {
    input.logits = model::Logits::kLast;
    input.tokens = viewed(request.drafted.back(), {std::ssize(request.rows), 1});  // [B,1]
    input.new_tokens.assign(request.active.begin(), request.active.end());
  }
  input.tokens = mask_unknown(input.tokens);
  const at::Tensor logits = model_.step(input, *state_).logits;  // [B,1,V]
  return fit_vocabulary(viewed(logits, {logits.size(0), logits.size(2)}), vocabulary_);
}

int64_t ModelDrafter::step_tokens(const DraftRequest& request, size_t row) const {
  if (!request.drafted.empty()) return 1;
  return request.rows[row].length() - state_->length(static_cast<int64_t>(row));
}

void ModelDrafter::observe(const DraftObservation& observation) {
  std::vector<int64_t> lengths;
  lengths.reserve(observation.rows.size());
  for (const Row& row : observation.rows) lengths.push_back(row.length() - 1);
  state_->rollback(lengths);
}

void ModelDrafter::select_rows(std::span<const int64_t> rows) {
  state_->select_rows(rows);
}

SharedDrafter load_model_drafter(const std::filesystem::path& directory, const model::LoadOptions& options) {
  return std::make_shared<OwnedModelDrafter>(load_model_directory(directory, options));
}

SharedDrafter as_drafter(model::LanguageModel& model, const data::Tokenizer* tokenizer,
                         std::filesystem::path directory) {
  return std::make_shared<LoadedModelDrafter>(model, tokenizer, std::move(directory));
}

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

namespace {

class LoadedSharedEncoder final : public ReadingDrafter {
 public:
  using ReadingDrafter::ReadingDrafter;

  std::unique_ptr<Drafter> make(const DraftTarget& target) const override {
    return std::make_unique<SharedEncoderDrafter>(drafter(), target.model.info().vocabulary);
  }

  // Steps read what the encoder left, so the encoder is in none of them.
  StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context,
                       int64_t max_tokens) const override {
    model::SharedEncoderPair alone(drafter(), target.model);
    return measure_step_costs(target.model, alone, context, max_tokens);
  }

  ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                           int64_t /*block*/) const override {
    model::SharedEncoderPair alone(drafter(), target.model);
    return measure_forced_alpha({target.model, alone}, texts.sources, texts.outputs, warping);
  }

 private:
  void require_pair(const model::TransformerConfig& target, const model::PairNames& names) const override {
    model::require_shared_encoder_pair(drafter().config(), target, names);
  }
};

}  // namespace

SharedDrafter load_shared_encoder_drafter(const std::filesystem::path& directory, const std::filesystem::path& target,
                                          const model::LoadOptions& options) {
  return std::make_shared<LoadedSharedEncoder>(
      model::load_with_companion(model::shared_encoder_kind(), directory, target, options), directory);
}

SharedDrafter shared_encoder_drafter(std::shared_ptr<model::TransformerModel> drafter,
                                     const data::Tokenizer* tokenizer) {
  return std::make_shared<LoadedSharedEncoder>(std::move(drafter), tokenizer);
}

}  // namespace draftsmith::infer
