#include "cli/inputs.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/toml.h"
#include "data/datasets/datasets.h"
#include "evaluate/suite/suite_options.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

// Puts the data folder in place of "$DATA" at the beginning of texts. Returns what was written, by the paths.
std::map<std::string, std::string> find_data(toml::table& table) {
  std::map<std::string, std::string> written;
  for_each_string(table, [&](toml::value<std::string>& value) {
    const std::string text = value.get();
    value = data::real_path(text);
    written[value.get()] = text;
  });
  return written;
}

// Reports the suite's paths that do not exist.
void check_files(const fs::path& file, const toml::table& table, const evaluate::SuiteOptions& options,
                 const std::map<std::string, std::string>& written, Problems& problems) {
  const auto listed = option_paths(options);
  const std::set<fs::path> paths(listed.begin(), listed.end());
  std::set<std::string> reported;
  for_each_string(table, [&](const toml::value<std::string>& value) {
    if (!paths.contains(value.get()) || fs::exists(value.get()) || !reported.insert(value.get()).second) return;
    const std::string where = location_of(value);
    problems.add(data::missing_path(written.at(value.get()), where.empty() ? file.string() : where));
  });
}

// Reads the tasks' files, so that missing references and fields are found before a model is loaded.
void check_lines(const evaluate::SuiteOptions& options, Problems& problems) {
  for (const evaluate::TaskOptions& task : options.task) {
    try {
      evaluate::load_task(task);
    } catch (const UserError& error) {
      problems.add_all(error.problems());
    }
  }
}

constexpr const char* kResultsFile = "results.json";

}  // namespace

evaluate::SuiteOptions load_suite(const fs::path& file, const std::vector<std::string>& overrides) {
  Problems problems;
  toml::table table = load_toml(file);
  data::list_tasks(table);
  apply_overlays(table, overrides, {"task", "run", "drafter"}, problems);
  data::fill_in_dataset_tasks(table, problems);
  const auto written = find_data(table);
  auto options = parse_options<evaluate::SuiteOptions>(table, "", problems);
  check_files(file, table, options, written, problems);
  problems.throw_if_any();
  if (!table.contains("name")) options.name = file.stem().string();
  check_lines(options, problems);
  problems.throw_if_any();
  return options;
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
