#include "infer/drafters/model_drafter.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/device_tensors.h"
#include "infer/costs/step_costs.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/load_models.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "model/files/model_directory.h"
#include "model/models/shared_encoder.h"

namespace draftsmith::infer {
namespace {

class LoadedModelDrafter final : public LoadedDrafter {
 public:
  LoadedModelDrafter(model::LanguageModel& model, const data::Tokenizer* tokenizer, std::filesystem::path directory)
      : model_(model), tokenizer_(tokenizer), directory_(std::move(directory)) {}
  explicit LoadedModelDrafter(LoadedModel loaded)
      : owned_(std::move(loaded)),
        model_(*owned_->model),
        tokenizer_(owned_->tokenizer.get()),
        directory_(owned_->directory) {}

  std::string name() const override { return model_.info().name; }
  std::filesystem::path path() const override { return directory_; }
  model::LanguageModel* model() const override { return &model_; }
  const LoadedModel* standalone() const override { return owned_ ? &*owned_ : nullptr; }

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

 private:
  std::optional<LoadedModel> owned_;  // what was loaded; absent: the caller owns the model
  model::LanguageModel& model_;
  const data::Tokenizer* tokenizer_;
  std::filesystem::path directory_;
};

}  // namespace

void ModelDrafter::encode(const DraftBegin& begin) {
  if (!model_.info().encoder_decoder) return;
  model::TokenBatch sources{begin.sources.tokens.to(model_.info().device), begin.sources.lengths};
  // Nothing is drafted for sources beyond the positions, so they may be cut.
  const int64_t columns = capacity_within(model_.info(), sources.tokens.size(1));
  if (columns < sources.tokens.size(1)) {
    sources.tokens = sources.tokens.narrow(1, 0, columns).contiguous();
    for (int64_t& length : sources.lengths) length = std::min(length, columns);
  }
  sources.tokens = known_tokens(sources.tokens, model_.info(), vocabulary_);
  encoder_ = model_.encode(sources);
}

void ModelDrafter::prefill(const DraftBegin& begin) {
  model_.give_back(std::move(state_));
  const StateSize size{capacity_within(model_.info(), begin.capacity), begin.samples};
  const bool all_fit = std::ranges::all_of(begin.rows, [&](const Row& row) { return room(row) > 0; });
  if (model_.info().encoder_decoder || (model_.info().vocabulary >= vocabulary_ && all_fit)) {
    state_ = infer::prefill(model_, encoder_, begin.rows, size).state;
  } else {
    std::vector<Row> prompts(begin.rows.size());
    for (size_t b = 0; b < prompts.size(); ++b) {
      // A prompt beyond the positions is not read: a prompt of one token has none to process.
      prompts[b].tokens = room(begin.rows[b]) == 0
                              ? std::vector{model_.info().pad}
                              : mask_unknown_ids(model_.info(), {&begin.rows[b].tokens, 1}).front();
    }
    state_ = infer::prefill(model_, encoder_, prompts, size).state;
  }
  encoder_ = {};
}

// Returns the committed tokens that the state has not processed: one, two after a full acceptance, and any number after
// windows of look-up.
model::StepInput ModelDrafter::unseen_tokens(const DraftRequest& request) const {
  model::StepInput input;
  input.logits = model::Logits::kLast;
  std::vector<std::span<const int64_t>> unseen;
  for (size_t b = 0; b < request.rows.size(); ++b) {
    const Row& row = request.rows[b];
    input.new_tokens.push_back(request.active[b] != 0 ? row.length() - state_->length(static_cast<int64_t>(b)) : 0);
    unseen.push_back(std::span(row.tokens).last(static_cast<size_t>(input.new_tokens.back())));
  }
  input.tokens = padded(unseen, model_.info().pad, model_.info().device);
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
  input.tokens = known_tokens(input.tokens, model_.info(), vocabulary_);
  const at::Tensor logits = model_.step(input, *state_).logits;  // [B,1,V]
  return fit_vocabulary(viewed(logits, {logits.size(0), logits.size(2)}), vocabulary_);
}

StepTokens ModelDrafter::step_tokens(const DraftRequest& request, size_t row) const {
  if (!request.drafted.empty()) return {};
  return {.processed = request.rows[row].length() - state_->length(static_cast<int64_t>(row))};
}

void ModelDrafter::observe(const DraftObservation& observation) {
  state_->rollback(from_each(observation.rows, [](const Row& row) { return row.length() - 1; }));
}

void ModelDrafter::select_rows(std::span<const int64_t> rows) {
  state_->select_rows(rows);
}

SharedDrafter load_model_drafter(const std::filesystem::path& directory, const model::LoadOptions& options,
                                 const data::Languages& languages) {
  return std::make_shared<LoadedModelDrafter>(load_model_directory(directory, options, languages));
}

SharedDrafter as_drafter(model::LanguageModel& model, const data::Tokenizer* tokenizer,
                         std::filesystem::path directory) {
  return std::make_shared<LoadedModelDrafter>(model, tokenizer, std::move(directory));
}

ReadingDrafter::ReadingDrafter(std::shared_ptr<model::TransformerModel> drafter, const data::Tokenizer* tokenizer,
                               std::filesystem::path directory)
    : drafter_(std::move(drafter)), directory_(std::move(directory)), tokenizer_(tokenizer) {
  if (tokenizer_ != nullptr || directory_.empty() || !data::has_tokenizer(directory_)) return;
  owned_tokenizer_ = data::load_tokenizer(directory_);
  tokenizer_ = owned_tokenizer_.get();
}

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

// The drafter `model` without an encoder of its own (model/models/shared_encoder.h): it drafts as any small model does,
// but projects the encoder states that the target has computed.
class SharedEncoderDrafter final : public ModelDrafter {
 public:
  SharedEncoderDrafter(model::TransformerModel& drafter, int64_t vocabulary)
      : ModelDrafter(drafter, vocabulary, false), drafter_(drafter) {}

  void encode(const DraftBegin& begin) override { encoder_ = drafter_.project_encoder(*begin.target_encoder); }

 private:
  model::TransformerModel& drafter_;
};

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
    return measure_forced_alpha({target.model, alone}, texts, warping);
  }

 private:
  void require_pair(const model::TransformerConfig& target, const model::PairNames& names) const override {
    model::require_shared_encoder_pair(drafter().config(), target, names);
  }
};

}  // namespace

SharedDrafter shared_encoder_drafter(std::shared_ptr<model::TransformerModel> drafter, const data::Tokenizer* tokenizer,
                                     std::filesystem::path directory) {
  return std::make_shared<LoadedSharedEncoder>(std::move(drafter), tokenizer, std::move(directory));
}

}  // namespace draftsmith::infer
