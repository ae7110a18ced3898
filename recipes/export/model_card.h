// The model card of an exported directory (README.md, with the front matter the Hugging Face Hub reads): what the model
// is, how it was trained and on which data, where it was measured, and that the export holds it.
#pragma once

#include <string>

#include "model/files/model_directory.h"
#include "recipes/export/export_formats.h"
#include "recipes/export/export_summary.h"

namespace draftsmith::recipes {

// Subject of a card.
struct CardInputs {
  const ExportOptions& options;
  const ExportSummary& summary;
  const model::ModelDescription& model;  // of what was written
};

// Returns the card's text.
std::string model_card(const CardInputs& inputs);

}  // namespace draftsmith::recipes
