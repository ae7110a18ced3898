// The models and inputs of a generator.
#pragma once

#include <cstdint>
#include <optional>

#include "model/files/generation_config.h"

namespace draftsmith::data {
class NgramTable;  // data/ngrams/ngram_table.h
}

namespace draftsmith::model {
class Exits;             // model/kinds/exits.h
class RouterPredictor;   // model/kinds/router.h
class TransformerModel;  // model/transformer/transformer_model.h
}  // namespace draftsmith::model

namespace draftsmith::model {
class LanguageModel;
}

namespace draftsmith::data {
class Tokenizer;
}

namespace draftsmith::infer {

class AcceptedLengths;  // infer/windows/oracle.h

// The models of a generator. They must outlive it; one generator at a time may use them.
struct GenerationModels {
  model::LanguageModel* target = nullptr;
  model::LanguageModel* drafter = nullptr;             // may be the target itself; needed by methods that draft
  std::optional<model::GenerationConfig> generation;   // the target directory's settings; absent: info().eos alone
  const data::Tokenizer* target_tokenizer = nullptr;   // given: ids above its pieces are padding and never put out
  const data::Tokenizer* drafter_tokenizer = nullptr;  // both given: vocabularies are compared piece by piece
  const data::NgramTable* ngrams = nullptr;            // instead of a drafter model: the drafter ngram
  int64_t lookup = 0;                                  // instead of both: prompt look-up, from n-grams of this length
  model::TransformerModel* tandem = nullptr;           // instead of these: a Tandem secondary of the target
  int64_t exit_layer = 0;                              // instead of these: the target's first so many layers
  const model::Exits* exits = nullptr;                 // of the target; nullptr: its own final norm and head
  const model::RouterPredictor* router = nullptr;      // needed by the window router
  const AcceptedLengths* accepted_lengths = nullptr;   // needed by the window oracle
};

}  // namespace draftsmith::infer
