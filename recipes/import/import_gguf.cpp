#include "recipes/import/import_gguf.h"

#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

// Returns the script's answer. Errors: UserError with what it says of the file.
int64_t ask_importer(PythonScript& script, const nlohmann::ordered_json& request, const fs::path& file) {
  const nlohmann::json answered = script.ask(request, std::numeric_limits<double>::infinity());
  if (answered.contains("text")) return answered["text"].get<int64_t>();
  const auto text = [&](const char* key) { return answered["error"].value(key, ""); };
  throw UserError({.where = file.string(),
                   .what = text("what"),
                   .expected = text("expected"),
                   .found = text("found"),
                   .hint = text("hint")});
}

// Checks all but the numbers: settings, names and shapes of the weights, and the tokenizer. Errors: UserError with the
// problems of the directory, as those of the file that it was made of.
void check_imported(const fs::path& directory, const fs::path& file) {
  try {
    const model::ModelDirectory opened(directory);
    if (!data::has_tokenizer(directory)) return;
    const auto tokenizer = data::load_tokenizer(directory);
    model::require_vocabulary_fits(opened.config(), tokenizer->vocabulary(), directory.string());
  } catch (const UserError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) {
      const bool inside = problem.where.starts_with(directory.string());
      problem.where = file.string() + ", imported" + (inside ? problem.where.substr(directory.string().size()) : "");
    }
    throw UserError(problems);
  }
}

}  // namespace

void import_gguf(const fs::path& file, const fs::path& directory) {
  const fs::path out = model::require_free_place(directory);
  model::write_new_directory(out, [&](const fs::path& temporary) {
    std::string text;
    for (const EmbeddedText& part : import_texts()) text += part.text;
    PythonScript script(text, {.where = file.string(),
                               .what = "the file cannot be imported",
                               .module = "gguf",
                               .install = "pip install gguf"});
    const int64_t tensors = ask_importer(script, {{"file", file.string()}, {"directory", temporary.string()}}, file);
    check_imported(temporary, file);
    Progress progress({.style = progress_style(), .title = "importing", .unit = "tensors", .total = tensors});
    const LongWork work("Nothing was imported.", [&] { progress.tick(); });
    for (int64_t tensor = 0; tensor < tensors; ++tensor) {
      work_point();
      ask_importer(script, {{"tensor", tensor}}, file);
      progress.advance();
    }
    progress.finish();
  });
}

}  // namespace draftsmith::recipes
