// Which model a directory holds, as one hash: what else is bound to it (a teacher's cache, a Tandem secondary) names it
// so, and finds it again wherever it was moved to.
#pragma once

#include <filesystem>
#include <string>

namespace draftsmith::model {

// SHA-256 over config.json and the weight files, their names included, as 64 hex digits. Generation settings,
// tokenizer and additions of ours don't change it, nor does where a Tandem's primary lies. Reads all weights, but each
// file once in a process while its size and time of change stay. Errors: UserError as load_config and WeightFiles.
std::string model_hash(const std::filesystem::path& directory);

}  // namespace draftsmith::model
