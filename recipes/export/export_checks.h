// Checks that exports of every format make.
#pragma once

#include <filesystem>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "model/files/model_directory.h"
#include "recipes/export/export_summary.h"

namespace draftsmith::recipes {

// Returns the type of a directory's weights: the widest one, ignoring fp32 parameters that an fp16 model must keep.
at::ScalarType stored_type(const model::ModelDirectory& opened);

// Refuses what the format cannot hold, a model that changed since it was made, and measurements of another model.
// Errors: UserError with all problems.
void check_model(const model::ModelDirectory& opened, const ExportOptions& options);

// Refuses logits that are not finite, which cannot be compared. Errors: UserError.
void require_finite_logits(const at::Tensor& logits, const std::filesystem::path& model);

// Throws the error that the requested type cannot hold the model's values.
[[noreturn]] void throw_type_too_narrow(const ExportOptions& options, const Problem& problem);

// Throws a RunError that summarises how the written model differs from its source.
[[noreturn]] void throw_mismatch(const std::vector<Problem>& problems, const std::filesystem::path& out);

}  // namespace draftsmith::recipes
