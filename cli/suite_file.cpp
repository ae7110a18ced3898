#include "cli/suite_file.h"

#include <set>

#include "base/toml.h"
#include "data/datasets/datasets.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::cli {
namespace {

toml::table read_table(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                       Problems& problems) {
  toml::table table = load_toml(file);
  data::name_dataset_tasks(table);
  const toml::table before = table;
  apply_overlays(table, overrides, {"task", "run", "drafter"}, problems);
  data::rename_dataset_tasks(before, table);
  return table;
}

// Puts the data folder in place of "$DATA" in the suite's paths. Reports paths that do not exist.
void find_files(const std::filesystem::path& file, toml::table& table, const evaluate::SuiteOptions& options,
                Problems& problems) {
  const auto listed = option_paths(options);
  const std::set<std::filesystem::path> paths(listed.begin(), listed.end());
  std::set<std::string> reported;
  for_each_string(table, [&](toml::value<std::string>& value) {
    const std::string text = value.get();
    if (!paths.contains(text)) return;
    value = data::real_path(text);
    if (std::filesystem::exists(value.get()) || !reported.insert(text).second) return;
    const std::string where = location_of(value);
    problems.add(data::missing_path(text, where.empty() ? file.string() : where));
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

}  // namespace

evaluate::SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Problems problems;
  toml::table table = read_table(file, overrides, problems);
  data::fill_in_dataset_tasks(table, data::DataPaths::kReal, problems);
  find_files(file, table, parse_options<evaluate::SuiteOptions>(table, "", problems), problems);
  problems.throw_if_any();
  auto options = parse_options<evaluate::SuiteOptions>(table, "", problems);
  if (!table.contains("name")) options.name = file.stem().string();
  check_lines(options, problems);
  problems.throw_if_any();
  return options;
}

}  // namespace draftsmith::cli
