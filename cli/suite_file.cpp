#include "cli/suite_file.h"

#include <set>

#include "data/datasets/dataset_keys.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::cli {
namespace {

toml::table read_table(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                       Problems& problems) {
  toml::table table = load_toml(file);
  data::name_dataset_tasks(table);
  apply_overlays(table, overrides, {"task", "run", "drafter"}, problems);
  return table;
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

}  // namespace

toml::table suite_table(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Problems problems;
  toml::table table = read_table(file, overrides, problems);
  problems.throw_if_any();
  return table;
}

evaluate::SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Problems problems;
  toml::table table = read_table(file, overrides, problems);
  data::fill_in_dataset_tasks(table, data::DataPaths::kReal, problems);
  auto options = parse_options<evaluate::SuiteOptions>(table, "", problems);
  if (!table.contains("name")) options.name = file.stem().string();
  const auto paths = option_paths(options);
  for (const auto& path : std::set<std::filesystem::path>(paths.begin(), paths.end())) {
    if (std::filesystem::exists(path)) continue;
    problems.add({.where = file.string(),
                  .what = "a file or model directory of the suite is missing",
                  .expected = "a file or folder",
                  .found = path.string() + " (not there)",
                  .hint = path.is_absolute() ? "" : "paths are relative to the current directory"});
  }
  problems.throw_if_any();
  check_lines(options, problems);
  problems.throw_if_any();
  return options;
}

}  // namespace draftsmith::cli
