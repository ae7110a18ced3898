#include "cli/inputs.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/load_models.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResultsFile = "results.json";

}  // namespace

std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const infer::LoadedModel& loaded,
                                                   LineKind kind, bool ids) {
  const model::ModelInfo& info = loaded.model->info();
  data::LineReader lines = data::open_lines(file);
  std::vector<std::vector<int64_t>> result;
  for (std::string line; lines.next(line);) {
    if (ids) {
      result.push_back(data::parse_token_ids(line, info.vocabulary, lines.where(), "omit --ids to read text"));
      continue;
    }
    if (const auto bad = invalid_utf8_offset(line)) data::throw_invalid_utf8(lines.where(), line, *bad);
    const data::Tokenizer& tokenizer = infer::tokenizer_of(loaded, "give token ids with --ids");
    const bool source = kind == LineKind::kSource;
    result.push_back(source ? infer::source_ids(line, tokenizer, info) : infer::target_ids(line, tokenizer, info));
  }
  return result;
}

fs::path find_results(const fs::path& path) {
  if (fs::is_regular_file(path)) return path;
  if (fs::exists(path / kResultsFile)) return path / kResultsFile;
  std::vector<std::string> files;  // of the stages in use of a work directory
  for (const auto& entry : fs::is_directory(path) ? fs::directory_iterator(path) : fs::directory_iterator()) {
    const fs::path file = entry.path() / kResultsFile;
    if (entry.is_symlink() && fs::exists(file)) files.push_back(file.string());
  }
  std::sort(files.begin(), files.end());
  if (files.size() == 1) return files.front();
  throw UserError({.where = path.string(),
                   .what = files.empty() ? "there are no results" : "there are several results",
                   .expected = "a results.json, or a directory with one: of an evaluation, a stage or a recipe's work",
                   .found = files.empty() ? "none" : fmt::format("{}", fmt::join(files, ", ")),
                   .hint = files.empty() ? "" : "name one of them"});
}

}  // namespace draftsmith::cli
