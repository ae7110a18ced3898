// Copies of model directories: for those who put a model that stays as it is beside something of their own.
#pragma once

#include <filesystem>

namespace draftsmith::model {

// Copies what a model directory consists of into a new directory: its own files, and draftsmith/ but for what belongs
// to the directory rather than to the model: the record and the probes of an export, its model card. Other folders,
// hidden files and links that lead nowhere are left out; links become files; modes are those of new files.
// Errors: RunError of reading and writing.
void copy_model(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace draftsmith::model
