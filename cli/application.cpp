#include "cli/application.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <ranges>
#include <stdexcept>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/table.h"
#include "infer/decode_options.h"
#include "recipes/stage.h"

namespace draftsmith::cli {

// ---- Flags

std::string flag_name(const std::string& field_name) {
  std::string name = "--" + field_name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

namespace {

std::string help_of(const Field& field) {
  std::string help = field.help;
  if (!field.unit.empty()) help += " Unit: " + field.unit + ".";
  std::vector<std::string> choices = field.choices;
  std::erase(choices, "");
  if (!choices.empty()) help += " One of " + CLI::detail::join(choices, ", ") + ".";
  return help;
}

}  // namespace

FieldFlags::FieldFlags(CLI::App& app, FieldList fields, void* defaults, const std::set<std::string>& except)
    : fields_(std::move(fields)) {
  const CLI::callback_t keep_results = [](const CLI::results_t&) { return true; };
  for (const Field& field : fields_.all()) {
    const FlagKind kind = flag_kind(field, defaults);
    if (kind == FlagKind::kNone || except.contains(field.name)) continue;
    // Must be const: add_flag would store the flag's value into a mutable string.
    const std::string help = help_of(field);
    if (kind == FlagKind::kSwitch) {
      flags_.push_back({field, app.add_flag(flag_name(field.name), help)});
      continue;
    }
    CLI::Option* option = app.add_option(flag_name(field.name), keep_results, help);
    option->type_name(field.choices.empty() ? "VALUE" : "NAME");
    option->default_str(field_text(field, defaults));
    if (kind == FlagKind::kValues) option->expected(1, 1 << 20)->allow_extra_args(false);
    flags_.push_back({field, option});
  }
}

bool FieldFlags::given(const std::string& name) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& flag) { return flag.field.name == name && flag.option->count() > 0; });
}

void FieldFlags::parse_into(void* object) const {
  Problems problems;
  for (const Flag& flag : flags_) {
    parse_field_text(flag.field, flag.option->results(), flag_name(flag.field.name), object, problems);
  }
  if (problems.empty()) validate_fields(fields_, object, "", problems);
  problems.throw_if_any();
}

void add_execution_flags(CLI::App& app, ExecutionOptions& execution) {
  const Fields<ExecutionOptions> fields = ExecutionOptions::fields();
  const auto help = [&](const std::string& name) {
    const auto named = [&](const Field& field) { return field.name == name; };
    return std::find_if(fields.all().begin(), fields.all().end(), named)->help;
  };
  app.add_option("--device", execution.device, help("device"))->capture_default_str();
  app.add_option("--threads", execution.threads, help("threads"))->capture_default_str();
  app.add_flag("--quiet,-q", execution.quiet, help("quiet"));
}

void add_set_flag(CLI::App& app, std::vector<std::string>& set) {
  app.add_option("--set", set,
                 "Override one key of the file, for example --set target.training.length='500 steps'; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

namespace {

// ---- Commands

struct Command {
  const char* name;
  const char* summary;
  Action (*add)(CLI::App& app);
};

Action add_help(CLI::App& app);

// Every command in the order of `draftsmith --help`.
constexpr Command kCommands[] = {
    {"new", "Write a recipe that gives a model of yours a drafter", add_new},
    {"train", "Run a recipe: train models, make teacher outputs, evaluate", add_train},
    {"eval", "Run a suite: measure quality and speed of decoding methods", add_eval},
    {"report", "Show the results of an evaluation, or write them as a page", add_report},
    {"compare", "Show what changed between two evaluations, for users and CI", add_compare},
    {"validate", "Report every error of recipes and suites without running them", add_validate},
    {"generate", "Print outputs for each line of a file, by any decoding method", add_generate},
    {"score", "Compute BLEU, chrF, ROUGE or a program's measure of a file", add_score},
    {"plan", "Say whether a drafter will pay, and with which window", add_plan},
    {"prune", "Cut a smaller model out of a trained one", add_prune},
    {"export", "Write a model for Transformers, vLLM or llama.cpp", add_export},
    {"import", "Make a model directory of a GGUF file", add_import},
    {"inspect", "Describe a model, corpus, stage or work directory", add_inspect},
    {"verify", "Check that a directory is still as it was written", add_verify},
    {"help", "Explain a command, or every option of the configuration files", add_help},
};

constexpr const char* kDescription =
    "Draftsmith trains small drafters for large sequence models and measures how much each one speeds up\n"
    "decoding and what it costs in quality.";

constexpr const char* kExamples =
    "Examples:\n"
    "Train a target and drafters and measure them, in minutes on a CPU:\n"
    "  draftsmith train recipes/quickstart.toml --work work/quickstart\n"
    "Describe the result, and decode with the model and with a drafter:\n"
    "  draftsmith inspect work/quickstart\n"
    "  draftsmith generate --model work/quickstart/target/model --input source.txt\n"
    "  draftsmith generate --model work/quickstart/target/model --input source.txt \\\n"
    "    --drafter work/quickstart/aligned/model --method speculative\n"
    "Explain one command, or every option of recipes and suites:\n"
    "  draftsmith help generate\n"
    "  draftsmith help options";

// Returns the command that the arguments name; the program itself if they name none. Throws UserError for a misspelt
// one, before CLI11 reports another error.
const CLI::App& find_command(const CLI::App& root, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with("-")) return root;
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (arguments.front() == command.name) return *root.get_subcommand(command.name);
    names.emplace_back(command.name);
  }
  const std::string near = nearest(arguments.front(), names);
  throw UserError({.where = "",
                   .what = "unknown command '" + arguments.front() + "'",
                   .expected = fmt::format("one of {}", fmt::join(names, ", ")),
                   .hint = near.empty() ? "draftsmith --help lists the commands" : "did you mean '" + near + "'?"});
}

// Formatter whose help lines fit a hundred columns.
class WrappingFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = wrapped(CLI::Formatter::make_option_desc(option), kColumns - kNameColumns, 0, 0);
    text.pop_back();  // the last newline
    return text;
  }

  static constexpr size_t kNameColumns = 34;
  static constexpr size_t kColumns = 100;
};

UserError command_line_error(const CLI::App& called, const CLI::ParseError& error,
                             const std::vector<std::string>& arguments) {
  const std::string name = (called.get_parent() == nullptr ? "" : "draftsmith ") + called.get_name();
  std::vector<std::string> known;
  for (const CLI::Option* option : called.get_options()) {
    for (const std::string& flag : option->get_lnames()) known.push_back("--" + flag);
  }
  Problems problems;
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  if (code == CLI::ExitCodes::ExtrasError || code == CLI::ExitCodes::RequiredError) {
    for (const std::string& argument : arguments) {
      const std::string flag = argument.substr(0, argument.find('='));
      if (!flag.starts_with("--") || std::find(known.begin(), known.end(), flag) != known.end()) continue;
      const std::string near = nearest(flag, known);
      problems.add({name, "unknown flag '" + flag + "'", "", "",
                    near.empty() ? name + " --help lists the flags" : "did you mean '" + near + "'?"});
    }
  }
  if (problems.empty()) problems.add({name, error.what(), "", "", name + " --help explains the flags"});
  return UserError(problems.list());
}

// Returns the arguments as CLI11 takes them. Of `--flag=` it would take the next one for the value.
std::vector<std::string> words_from_the_back(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments | std::views::reverse) {
    const bool empty = argument.starts_with("--") && argument.find('=') + 1 == argument.size();
    if (empty) words.emplace_back();
    words.push_back(empty ? argument.substr(0, argument.size() - 1) : argument);
  }
  return words;
}

// Explains the options of the NAME of `draftsmith help options NAME`; of none all.
int print_options(const std::string& wanted) {
  std::vector<std::pair<std::string, std::function<std::string()>>> sections = {
      {"run", describe_options<ExecutionOptions>}, {"decoding", describe_options<infer::DecodeOptions>}};
  for (const recipes::StageKind& kind : recipes::stage_kinds()) sections.emplace_back(kind.name, kind.describe_options);
  std::vector<std::string> names;
  bool printed = false;
  for (const auto& [name, describe] : sections) {
    names.push_back(name);
    if (!wanted.empty() && name != wanted) continue;
    std::cout << (printed ? "\n" : "") << describe();
    printed = true;
  }
  if (printed) return 0;
  throw UserError(unknown_name("section of options", wanted, names));
}

Action add_help(CLI::App& app) {
  auto topic = std::make_shared<std::vector<std::string>>();
  app.add_option("topic", *topic, "'options', 'options NAME', or a command");
  app.footer(
      "Examples:\n"
      "  draftsmith help generate        explains one command\n"
      "  draftsmith help options         explains every option of recipes and suites\n"
      "  draftsmith help options train   explains the options of one kind of stage");
  return [topic] {
    if (topic->empty()) return run({"--help"});
    if (topic->front() == "options") return print_options(topic->size() > 1 ? (*topic)[1] : "");
    std::vector<std::string> arguments = *topic;
    arguments.push_back("--help");
    return run(arguments);
  };
}

// ---- Messages of errors

constexpr int kFailed = 1, kMistaken = 2;

int report(const std::string& message, int exit_code) {
  std::cout.flush();
  std::cerr << message << std::endl;
  return exit_code;
}

std::string with_heading(const Error& error) {
  const size_t count = error.problems().size();
  if (count > 1) return std::to_string(count) + " errors:\n" + error.what();
  return std::string("error: ") + error.what();
}

// Reports a failed run if standard output could not take all results.
int flushed(int exit_code) {
  std::cout.flush();
  if (std::cout.good() && std::ferror(stdout) == 0) return exit_code;
  return report("error: standard output could not be written\n  hint:     is its disk full?", kFailed);
}

}  // namespace

std::function<std::string(const std::string&)> within(double lowest, double highest) {
  return [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= lowest && value <= highest) return "";
    return fmt::format("'{}' is not a number from {} to {}", text, lowest, highest);
  };
}

std::vector<Action> add_commands(CLI::App& app) {
  std::vector<Action> actions;
  for (const auto& [name, summary, add] : kCommands) actions.push_back(add(*app.add_subcommand(name, summary)));
  return actions;
}

int run(const std::vector<std::string>& arguments) {
  CLI::App app(kDescription, "draftsmith");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("draftsmith {} ({}, {}, LibTorch {})", version(), git_commit(),
                                                compiler(), libtorch_version()));
  // Subcommands take over the formatter that is set when they are added.
  app.formatter(std::make_shared<WrappingFormatter>());
  app.get_formatter()->column_width(WrappingFormatter::kNameColumns);
  const std::vector<Action> actions = add_commands(app);
  const CLI::App& called = find_command(app, arguments);

  if (arguments.empty()) {
    std::cout << app.help();
    return 0;
  }
  try {
    app.parse(words_from_the_back(arguments));
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    throw command_line_error(called, error, arguments);
  }
  return actions.at(static_cast<size_t>(std::ranges::find(kCommands, called.get_name(), &Command::name) - kCommands))();
}

int guarded(const Action& work) {
  try {
    return flushed(work());
  } catch (const Interrupted& stop) {
    return report(stop.what(), stop.exit_code());
  } catch (const Error& error) {
    return report(with_heading(error), error.exit_code());
  } catch (const c10::OutOfMemoryError& error) {
    const std::string text = error.what_without_backtrace();  // ends in advice on LibTorch's own settings
    return report(
        "error: the GPU's memory is full\n  found:    " + text.substr(0, text.find(" Of the allocated memory")) +
            "\n  hint:     decode with a smaller --batch-size, train with a smaller batches.token_budget "
            "or in bf16, or stop other programs on the GPU",
        kFailed);
  } catch (const c10::Error& error) {
    return report("error: LibTorch: " + std::string(error.what_without_backtrace()), kFailed);
  } catch (const std::filesystem::filesystem_error& error) {  // of a path that cannot be looked at
    return report("error: " + std::string(error.what()), kMistaken);
  } catch (const std::bad_alloc&) {
    return report("error: out of memory\n  hint:     use smaller batches or a smaller model", kFailed);
  } catch (const std::logic_error& error) {
    return report("internal error: " + std::string(error.what()) +
                      "\n  hint:     this is a bug in draftsmith; please report it with the command and its input",
                  kFailed);
  } catch (const std::exception& error) {
    return report("error: " + std::string(error.what()), kFailed);
  }
}

}  // namespace draftsmith::cli
