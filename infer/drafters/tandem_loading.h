// A Tandem secondary as a loaded drafter (infer/drafters/tandem_drafter.h): which targets it fits, what its steps cost,
// how well it predicts.
#pragma once

#include <filesystem>
#include <memory>

#include "infer/drafters/loaded_drafter.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {
struct LoadOptions;  // model/files/checkpoint.h
}

namespace draftsmith::infer {

// Loads the secondary in `directory`. Errors: UserError, also for a secondary of another primary than the model in
// `target`; an empty `target` is not compared.
SharedDrafter load_tandem_drafter(const std::filesystem::path& directory, const std::filesystem::path& target,
                                  const model::LoadOptions& options);

// Makes a drafter of a Tandem secondary. Without its tokenizer, its vocabulary must be as large as the target's.
SharedDrafter tandem_drafter(std::shared_ptr<model::TransformerModel> secondary,
                             const data::Tokenizer* tokenizer = nullptr);

}  // namespace draftsmith::infer
