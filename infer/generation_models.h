// The models and inputs of a generator.
#pragma once

#include <optional>

#include "infer/drafters/loaded_drafter.h"
#include "model/files/generation_config.h"

namespace draftsmith::model {
class RouterPredictor;  // model/kinds/router.h
}

namespace draftsmith::infer {

class AcceptedLengths;  // infer/windows/oracle.h

// The models of a generator. They must outlive it; one generator at a time may use them.
struct GenerationModels {
  model::LanguageModel* target = nullptr;
  SharedDrafter drafter = nullptr;                    // needed by methods that draft; early-exit brings its own
  std::optional<model::GenerationConfig> generation;  // the target directory's settings; absent: info().eos alone
  const data::Tokenizer* target_tokenizer = nullptr;  // given: ids above its pieces are padding and never put out
  const model::Exits* exits = nullptr;                // of the target; nullptr: its own final norm and head
  const model::RouterPredictor* router = nullptr;     // needed by the window router
  const AcceptedLengths* accepted_lengths = nullptr;  // needed by the window oracle

  DraftTarget draft_target() const { return {*target, target_tokenizer, exits}; }
};

}  // namespace draftsmith::infer
