// The commands that serve a target with a drafter in llama.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace draftsmith::recipes {

// Returns shell commands for the drafter's file and the target's directory; llama.cpp reads neither directories nor our
// weights. A file beside the drafter's that was exported from this target is served. Without one, the first command
// exports it there. An absent target is called TARGET.gguf. Errors: UserError for a target that is no model.
std::vector<std::string> gguf_commands(const std::optional<std::filesystem::path>& target,
                                       const std::filesystem::path& drafter);

}  // namespace draftsmith::recipes
