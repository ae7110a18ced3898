// Export to GGUF, llama.cpp's format: one file with the model, its tokenizer and where it comes from.
#pragma once

#include <c10/core/Device.h>

#include "recipes/export/export_summary.h"

namespace draftsmith::recipes {

// Exports a model as the file `options.out`. The file is read again before it gets its name: every number is compared
// with the model's (in blocks: up to half a step), and so are logits of probes and, with a target, alpha. Errors:
// UserError for unusable options, models and files, and a type that cannot hold the model's values; RunError if a write
// fails or the file differs from the model. After an error there is no file.
ExportSummary export_gguf(const ExportOptions& options, c10::Device device);

}  // namespace draftsmith::recipes
