#include "recipes/import/import_gguf.h"

#include <cstdint>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

// Checks all but the numbers: settings, names and shapes of the weights, and the tokenizer. Errors: UserError with the
// first problem of the directory, as one of the file that it was made of.
void check_imported(const fs::path& directory, const fs::path& file) {
  try {
    const model::ModelDirectory opened(directory);
    if (!data::has_tokenizer(directory)) return;
    const auto tokenizer = data::load_tokenizer(directory);
    model::require_vocabulary_fits(opened.config(), tokenizer->vocabulary(), directory.string());
  } catch (const UserError& error) {
    Problem first = error.problems().front();
    first.where = file.string() + ", imported as " + first.where;
    throw UserError(first);
  }
}

}  // namespace

void import_gguf(const fs::path& file, const fs::path& directory) {
  const fs::path out = model::require_free_place(directory);
  Progress timed({.title = "importing"}, "nothing was imported");
  model::write_new_directory(out, [&](const fs::path& temporary) {
    PythonScript script(import_texts(),
                        {.where = file.string(), .what = "the file cannot be imported", .module = "gguf"});
    const nlohmann::ordered_json names = {{"file", file.string()}, {"directory", temporary.string()}};
    const auto tensors = script.ask(names).get<int64_t>();
    check_imported(temporary, file);
    for (int64_t tensor = 0; tensor < tensors; ++tensor) {
      work_point();
      script.ask({{"tensor", tensor}});
    }
  });
}

std::filesystem::path imported_gguf(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const std::filesystem::path directory = folder / (file.stem().string() + "-" + sha256_file(file).substr(0, 8));
  if (!std::filesystem::exists(directory)) import_gguf(file, directory);
  return directory;
}

}  // namespace draftsmith::recipes
