// Front matter of a model card: the YAML that the Hugging Face Hub reads.
//
// License, languages, base model and data sets are what the user gave; a card without them is read too. `model-index`
// holds the acceptance and quality of an evaluation. Speedups are left out: they belong to a machine.
#pragma once

#include <string>

#include "evaluate/results/results.h"
#include "model/files/model_directory.h"
#include "recipes/export/export_summary.h"

namespace draftsmith::recipes {

// Returns the front matter with its lines of dashes; `measured` is null without an evaluation.
std::string card_front_matter(const ExportOptions& options, const model::ModelDescription& model,
                              const evaluate::Results* measured);

}  // namespace draftsmith::recipes
