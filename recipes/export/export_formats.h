// What models are exported as: an explicit list. A format says which models it can hold, and how what it wrote is used.
//
// Both write a Hugging Face directory. vLLM's draft models are just that, with more asked of them: decoder-only, and as
// many ids as the target (SpeculativeConfig.verify_equal_vocab_size_if_draft_model). The `speculators` library's config
// formats (eagle3, dflash, mtp, peagle, ...: version 0.9) all describe heads that read the target's hidden states; none
// describes a draft model that stands by itself, so none is written. GGUF is not written: the converter of
// convert_hf_to_gguf.py is in llama.cpp's repository, not in the `gguf` package.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/registry.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::recipes {

struct ExportFormat {
  std::string name;
  std::string summary;
  // Adds why a model cannot be exported so; `target` is absent when none is given.
  std::function<void(const std::string& where, const model::TransformerConfig& config,
                     const std::optional<model::TransformerConfig>& target, Problems& problems)>
      check;
  // Lines for the model card, in Markdown: how the directory is loaded.
  std::function<std::string(const std::filesystem::path& directory, const model::TransformerConfig& config)> usage;
};

// Returns all formats.
const Registry<ExportFormat>& export_formats();

// Errors: UserError that lists the known ones.
const ExportFormat& export_format_named(const std::string& name);

// Refuses, before it is opened as a model, what is no model of its own: Tandem secondaries (any format). Errors:
// UserError; also when there is no config.json that can be read.
void require_standalone(const std::filesystem::path& directory, const std::string& format);

}  // namespace draftsmith::recipes
