// The drafter of a generator's models.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "infer/drafters/drafter.h"
#include "infer/generation_models.h"

namespace draftsmith::infer {

// Adds a problem unless the models hold one drafter and it speaks of the target's tokens.
void check_drafter(const GenerationModels& models, const std::string& method, Problems& problems);

// The drafter of models that check_drafter() found no problem with. They must outlive it.
std::unique_ptr<Drafter> make_drafter(const GenerationModels& models);

}  // namespace draftsmith::infer
