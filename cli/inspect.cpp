// `draftsmith inspect` and `draftsmith verify`: describe a directory, and check that it is as it was written.
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/application.h"
#include "recipes/inspection.h"

namespace draftsmith::cli {

Action add_inspect(CLI::App& app) {
  auto path = std::make_shared<std::filesystem::path>();
  app.add_option("path", *path, "Model, exits, corpus, stage or work directory, or results.json")->required();
  app.footer("Examples:\n  draftsmith inspect work/quickstart\n  draftsmith inspect work/quickstart/target/model");
  return [path] {
    std::cout << recipes::inspect(*path);
    return 0;
  };
}

Action add_verify(CLI::App& app) {
  auto path = std::make_shared<std::filesystem::path>();
  app.add_option("path", *path, "Model, exits, corpus, stage or work directory, or results.json")->required();
  app.footer(
      "The exit code is 2 if anything differs.\nExamples:\n  draftsmith verify work/quickstart\n  draftsmith verify "
      "work/quickstart/target");
  return [path] {
    const auto problems = recipes::verify(*path);
    if (!problems.empty()) throw UserError(problems);
    std::cout << path->string()
              << (recipes::is_recorded(*path) ? ": as it was written\n" : ": well formed; no hashes to compare\n");
    return 0;
  };
}

}  // namespace draftsmith::cli
