// The subcommands of `draftsmith`: an explicit list (commands.cpp). Each lives in cli/<name>.cpp, declares its flags
// and returns what runs when it is chosen.
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
  // Declares the command's flags on `app`; the function it returns does the work and gives the exit code. Errors are
  // thrown (base/error.h) and become messages and exit codes in main.
  std::function<std::function<int()>(CLI::App& app)> add;
};

// Every subcommand in the order of `draftsmith --help`.
const std::vector<Command>& commands();

}  // namespace draftsmith::cli
