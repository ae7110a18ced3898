// `draftsmith import`: writes a Hugging Face directory from a GGUF file of llama.cpp. Python's `gguf` reads the file
// and makes numbers of its blocks (recipes/import/import_gguf.py).
#pragma once

#include <filesystem>
#include <span>

#include "base/child_process.h"

namespace draftsmith::recipes {

// Writes model, tokenizer and chat template into `directory`, which appears when it is complete. Numbers of 16 bits
// stay so; those of blocks become fp32, which alone holds them exactly. One tensor is in memory at a time. Errors:
// UserError for a directory that holds anything, a file that is damaged or contradicts itself, a model that cannot be
// read, a missing Python package and a full disk; Interrupted.
void import_gguf(const std::filesystem::path& file, const std::filesystem::path& directory);

// Returns the directory in `folder` of a file with this content; imports it unless an earlier call did.
std::filesystem::path imported_gguf(const std::filesystem::path& file, const std::filesystem::path& folder);

// What CMake embeds: the parts of the script, in order.
std::span<const EmbeddedText> import_texts();

}  // namespace draftsmith::recipes
