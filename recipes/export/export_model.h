// `draftsmith export`: a model as a directory that other engines load, with proof that it arrived whole.
//
// What is written is loaded again and compared with the model it was made from before it gets its name: every parameter
// bit for bit in the stored type, no tensor missing and none added, logits on probe inputs, and alpha against a target
// when one is given. The probes and all hashes go along (draftsmith/export.json), so that `draftsmith verify` can ask
// again later; README.md is a model card.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "recipes/export/export_summary.h"

namespace draftsmith::recipes {

// Errors: UserError for options, models and files that cannot be used, a model without finite logits, and a type that
// cannot hold what it computes; RunError when a write fails or what was written is not what the model is. In both cases
// there is no `out`, and nothing else was touched.
ExportSummary export_model(const ExportOptions& options, c10::Device device);

}  // namespace draftsmith::recipes
