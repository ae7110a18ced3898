// Formats of exported models: an explicit list. A format says which models it can hold, and how the result is used.
//
// `hf` and `vllm` write a Hugging Face directory. vLLM's draft models have further requirements: decoder-only, and as
// many ids as the target (SpeculativeConfig.verify_equal_vocab_size_if_draft_model). The `speculators` library's config
// formats (eagle3, dflash, mtp, peagle, ...: version 0.9) all describe heads that read the target's hidden states, and
// none a separate draft model, so none is written. GGUF (recipes/export/gguf.h) is one file, for llama.cpp.
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

constexpr const char* kGgufFormat = "gguf";

struct ExportFormat {
  std::string name;
  std::string summary;
  // Adds a problem for each reason why a model cannot be exported; `target` is absent when none is given.
  std::function<void(const std::string& where, const model::TransformerConfig& config,
                     const std::optional<model::TransformerConfig>& target, Problems& problems)>
      check;
  // Returns lines for the model card, in Markdown: how the directory is loaded.
  std::function<std::string(const std::filesystem::path& directory, const model::TransformerConfig& config)> usage = {};
  // Returns the shell commands that serve a target with the exported drafter, one after the other; none: it is used
  // from Python. `target` is the directory of the target, absent if none is given.
  std::function<std::vector<std::string>(const std::optional<std::filesystem::path>& target,
                                         const std::filesystem::path& drafter)>
      commands = {};
};

// Returns all formats.
const Registry<ExportFormat>& export_formats();

// Returns the format of that name. Errors: UserError that lists the known ones.
const ExportFormat& export_format_named(const std::string& name);

// Refuses, before it is opened as a model, a model that reads another one's states (a Tandem secondary, a drafter that
// shares its target's encoder), which no format can hold. Errors: UserError; also when there is no config.json that can
// be read.
void require_standalone(const std::filesystem::path& directory, const std::string& format);

}  // namespace draftsmith::recipes
