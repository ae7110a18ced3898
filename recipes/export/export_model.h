// `draftsmith export`: writes a model as a directory that other engines load, and verifies the copy.
//
// The written model is loaded again and compared with its source before the directory gets its name: every parameter
// bit for bit in the stored type, no tensor missing and none added, logits on probe inputs, and alpha against a target
// if one is given. The export contains the probes and all hashes (draftsmith/export.json), so that `draftsmith verify`
// can repeat the comparison. README.md is a model card.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "recipes/export/export_summary.h"

namespace draftsmith::recipes {

// Exports a model. Errors: UserError for unusable options, models and files, a model without finite logits, and a type
// that cannot hold the model's values; RunError if a write fails or the copy differs. After an error, there is no
// `out`.
ExportSummary export_model(const ExportOptions& options, c10::Device device);

}  // namespace draftsmith::recipes
