#include "cli/results_input.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "results.json";

// Returns the results of the stages in use of a work directory.
std::vector<std::string> results_of_stages(const fs::path& work) {
  std::vector<std::string> files;
  if (!fs::is_directory(work)) return files;
  for (const auto& entry : fs::directory_iterator(work)) {
    if (entry.is_symlink() && fs::exists(entry.path() / kFile)) files.push_back((entry.path() / kFile).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

fs::path find_results(const fs::path& path) {
  if (fs::is_regular_file(path)) return path;
  if (fs::exists(path / kFile)) return path / kFile;
  const auto files = results_of_stages(path);
  if (files.size() == 1) return files.front();
  throw UserError({.where = path.string(),
                   .what = files.empty() ? "there are no results" : "there are several results",
                   .expected = "a results.json, or a directory with one: of an evaluation, a stage or a recipe's work",
                   .found = files.empty() ? "none" : fmt::format("{}", fmt::join(files, ", ")),
                   .hint = files.empty() ? "" : "name one of them"});
}

}  // namespace draftsmith::cli
