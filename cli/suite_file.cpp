#include "cli/suite_file.h"

#include <set>

#include "base/toml.h"

namespace draftsmith::cli {

evaluate::SuiteOptions load_suite(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  toml::table table = load_toml(file);
  Problems problems;
  apply_overlays(table, overrides, {"task", "run", "drafter"}, problems);
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
  return options;
}

}  // namespace draftsmith::cli
