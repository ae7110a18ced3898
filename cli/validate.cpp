// `draftsmith validate`: reports every error of recipes and suites at once; runs nothing.
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/toml.h"
#include "cli/application.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "recipes/recipe.h"

namespace draftsmith::cli {

namespace {

// Returns a line about the file. Throws a UserError with all its problems.
std::string validate_file(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  if (recipes::is_recipe(load_toml(file))) {
    const recipes::Recipe recipe = recipes::load_recipe(file, overrides);
    return fmt::format("{}: recipe '{}', {} stages, no errors", file.string(), recipe.name, recipe.stages.size());
  }
  const evaluate::SuiteOptions suite = load_suite(file, overrides);
  std::string text = fmt::format("{}: suite '{}', {} tasks, {} runs, no errors", file.string(), suite.name,
                                 suite.task.size(), suite.run.size());
  for (const evaluate::TaskOptions& task : suite.task) {
    if (!task.metric.command.empty()) {
      text += fmt::format("\n  task {} runs the command: {}", task.name, task.metric.command);
    }
  }
  return text;
}

int run_validate(const std::vector<std::filesystem::path>& files, const std::vector<std::string>& overrides) {
  Problems problems;
  for (const auto& file : files) {
    try {
      std::cout << validate_file(file, overrides) << "\n";
    } catch (const UserError& error) {
      problems.add_all(error.problems());
    }
  }
  problems.throw_if_any();
  return 0;
}

}  // namespace

Action add_validate(CLI::App& app) {
  auto files = std::make_shared<std::vector<std::filesystem::path>>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  app.add_option("file", *files, "Recipes and suites (TOML)")->required()->type_name("FILE.toml");
  add_set_flag(app, *overrides);
  app.footer(
      "Examples:\n  draftsmith validate recipes/*.toml\n"
      "  draftsmith validate suite.toml --set task.test.limit=100");
  return [files, overrides] { return run_validate(*files, *overrides); };
}

}  // namespace draftsmith::cli
