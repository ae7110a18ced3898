// Copies of model directories, for results that contain an unchanged model.
#pragma once

#include <filesystem>

namespace draftsmith::model {

// Copies a model into a new directory: the directory's own files, and draftsmith/. The model card stays behind, since
// it describes the directory. Other folders, hidden files and broken links are left out; links become files; modes are
// those of new files. Errors: RunError of reading and writing.
void copy_model(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace draftsmith::model
