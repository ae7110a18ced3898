// A drafter that is ready for use: a loaded model or table, a rule that needs no file, or layers of the target. It
// knows which targets it fits, makes the Drafter of a decoding loop, and measures itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"

namespace draftsmith::data {
class Tokenizer;  // data/tokenizers/tokenizer.h
}

namespace draftsmith::model {
class Exits;             // model/models/exits.h
class LanguageModel;     // model/transformer/language_model.h
class TransformerModel;  // model/transformer/transformer_model.h
}  // namespace draftsmith::model

namespace draftsmith::infer {

class Drafter;              // infer/drafters/drafter.h
struct CalibrationContext;  // infer/costs/step_costs.h
struct ForcedAlpha;         // infer/forced/teacher_forcing.h
struct ForcedBatch;         // infer/forced/teacher_forcing.h
struct LoadedModel;         // infer/load_models.h
struct StepCosts;           // infer/costs/step_costs.h
struct Warping;             // infer/sampling/row_kernels.h

// The model that a drafter drafts for.
struct DraftTarget {
  model::LanguageModel& model;
  const data::Tokenizer* tokenizer = nullptr;  // nullptr: only the numbers of token ids are compared
  const model::Exits* exits = nullptr;         // nullptr: the model's own final norm and head
};

class LoadedDrafter {
 public:
  virtual ~LoadedDrafter() = default;

  // Returns the drafter's name in messages: a model's name, a table's file, "lookup:4", "exit:2".
  virtual std::string name() const = 0;
  // Reports a problem if the drafter cannot draft for the target: another vocabulary or another kind of model.
  virtual void check(const DraftTarget& target, Problems& problems) const = 0;
  // Makes a drafter for a target that check() reported no problem with. This object and the target must outlive it.
  virtual std::unique_ptr<Drafter> make(const DraftTarget& target) const = 0;

  // Returns the directory or file that the drafter was loaded from; empty: none.
  virtual std::filesystem::path path() const { return {}; }
  // Returns the model that drafts, whose context limits decoding; nullptr: none.
  virtual model::LanguageModel* model() const { return nullptr; }
  // Returns model() as a transformer, whose embeddings routers read; nullptr: it is none.
  const model::TransformerModel* transformer() const;
  // Returns the model with its tokenizer and settings if it can decode alone; else nullptr.
  virtual const LoadedModel* standalone() const { return nullptr; }
  // Returns whether the drafter reads the target's hidden states, as the methods tandem and tandem-speed need it.
  virtual bool reads_target() const { return false; }
  // Returns how many of the target's first layers draft; 0: the drafter is no part of the target.
  virtual int64_t inside_target() const { return 0; }

  // Returns the median seconds of steps of drafter and target (infer/costs/step_costs.h), for 1..max_tokens tokens.
  virtual StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context, int64_t max_tokens) const;
  // Returns how well the drafter predicts the target on given texts (infer/forced/teacher_forcing.h). `block`: tokens
  // that a Tandem secondary predicts at a time; 0: as it was trained. Other drafters ignore it.
  virtual ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                                   int64_t block) const;
};

using SharedDrafter = std::shared_ptr<const LoadedDrafter>;

}  // namespace draftsmith::infer
