// The command line of `draftsmith`: finds the command, parses its flags, runs it and reports its errors. A command is a
// function add_<name>(), which declares the flags and returns what runs the command. application.cpp lists them.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/child_process.h"
#include "base/device.h"
#include "base/options.h"

namespace draftsmith::cli {

// Runs a command and returns its exit code. Errors are thrown (base/error.h); guarded() turns them into messages.
using Action = std::function<int()>;

// Each declares its command's flags on `app`. Help needs an example of each.
Action add_train(CLI::App& app);
Action add_eval(CLI::App& app);
Action add_report(CLI::App& app);
Action add_compare(CLI::App& app);
Action add_validate(CLI::App& app);
Action add_generate(CLI::App& app);
Action add_score(CLI::App& app);
Action add_new(CLI::App& app);
Action add_plan(CLI::App& app);
Action add_prune(CLI::App& app);
Action add_export(CLI::App& app);
Action add_import(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_verify(CLI::App& app);

// ---- Flags
// Flags from the fields of an options struct, and flags that many commands share. A field `max_draft` becomes
// --max-draft; the flag of a list is repeated for each element.

// Returns a check of a flag's number. CLI::Range would accept NaN.
std::function<std::string(const std::string&)> within(double lowest, double highest);

// Type-erased part of OptionFlags.
class FieldFlags {
 public:
  // Adds a flag for each field that is neither a nested table nor in `except`. The help shows `defaults`.
  FieldFlags(CLI::App& app, FieldList fields, void* defaults, const std::set<std::string>& except);

  // Returns whether the flag of field `name` was on the command line.
  bool given(const std::string& name) const;
  // Reads the given flags into `object`, then checks it as a whole. Throws UserError with all problems.
  void parse_into(void* object) const;

 private:
  struct Flag {
    Field field;
    CLI::Option* option;
  };
  FieldList fields_;
  std::vector<Flag> flags_;
};

// The flags of options struct T on a subcommand.
template <class T>
class OptionFlags {
 public:
  // Takes default values from `defaults`. Fields in `except` get no flag.
  explicit OptionFlags(CLI::App& app, T defaults = {}, const std::set<std::string>& except = {})
      : defaults_(std::move(defaults)), flags_(app, T::fields(), &defaults_, except) {}

  bool given(const std::string& name) const { return flags_.given(name); }

  // Returns the options, after the command line was parsed. Throws UserError for wrong values.
  T value() const { return value_over(defaults_); }
  // Like value(), where `options` holds what no flag gave.
  T value_over(T options) const {
    flags_.parse_into(&options);
    return options;
  }

 private:
  T defaults_;
  FieldFlags flags_;
};

// Returns the flag of a field: "--max-draft" for "max_draft".
std::string flag_name(const std::string& field_name);

// Adds --device, --threads and --quiet.
void add_execution_flags(CLI::App& app, ExecutionOptions& execution);
// Adds --set, which the user may repeat.
void add_set_flag(CLI::App& app, std::vector<std::string>& set);

// Refuses a recipe where a suite is read, and a suite where a recipe is.
void require_recipe(const std::filesystem::path& file, bool recipe);

// ---- The command line

// Adds every command to the parser. Returns what runs each, in the order of `draftsmith --help`.
std::vector<Action> add_commands(CLI::App& app);

// Runs the command line `arguments`, which omits the program's name, and returns the exit code. Throws UserError for a
// command line that cannot be parsed. Errors of the command pass through.
int run(const std::vector<std::string>& arguments);

// Runs `work` and returns its exit code. Prints an exception's message on standard error and returns its exit code: 2
// if the user can correct the error, 1 if the run failed, 130 and 143 if it was asked to stop.
int guarded(const Action& work);

// What CMake embeds: the recipe of `draftsmith new`.
std::span<const EmbeddedText> cli_texts();

}  // namespace draftsmith::cli
