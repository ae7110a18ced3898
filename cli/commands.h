// The subcommands of `draftsmith`: an explicit list (commands.cpp). Each one is a file cli/<name>.cpp, which declares
// the flags and returns the function that runs the command.
//
//   // cli/score.cpp
//   std::function<int()> add_score(CLI::App& app) {
//     auto flags = std::make_shared<ScoreFlags>();
//     app.add_option("--hyp", flags->hypotheses, "Hypotheses, one a line")->required();
//     app.footer("Example:\n  draftsmith score bleu --hyp out.txt --ref test.de");
//     return [flags] { return run_score(*flags); };
//   }
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace draftsmith::cli {

struct Command {
  std::string name;
  std::string summary;  // one line, without a full stop
  // Declares the command's flags on `app`. Returns the function that runs the command and returns its exit code. Errors
  // are thrown (base/error.h); main turns them into messages and exit codes.
  std::function<std::function<int()>(CLI::App& app)> add;
};

// Returns every subcommand in the order of `draftsmith --help`.
const std::vector<Command>& commands();

}  // namespace draftsmith::cli
