// Flags of commands: those made from the fields of an options struct, and those that many commands share. A field
// `max_draft` becomes --max-draft; the flag of a list is repeated for each element.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <c10/core/Device.h>

#include "base/options.h"
#include "recipes/stage.h"

namespace draftsmith::cli {

// Type-erased part of OptionFlags.
class FieldFlags {
 public:
  // Adds a flag for each field that is neither a nested table nor in `except`. The help shows `defaults`.
  FieldFlags(CLI::App& app, FieldList fields, void* defaults, const std::set<std::string>& except);

  // Returns whether the flag of field `name` was on the command line.
  bool given(const std::string& name) const;
  // Reads the given flags into `object`, then checks it as a whole.
  void parse_into(void* object, Problems& problems) const;

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

  // Returns the options, after the command line was parsed. Adds problems for wrong values.
  T value(Problems& problems) const {
    T options = defaults_;
    flags_.parse_into(&options, problems);
    return options;
  }
  // Returns the same where no other problem is collected. Throws UserError for wrong values.
  T value() const {
    Problems problems;
    T options = value(problems);
    problems.throw_if_any();
    return options;
  }

 private:
  T defaults_;
  FieldFlags flags_;
};

// Returns the flag of a field: "--max-draft" for "max_draft".
std::string flag_name(const std::string& field_name);

using recipes::Execution;

// Adds --device, --threads, --matmul-precision and --quiet.
void add_execution_flags(CLI::App& app, Execution& execution);
// Adds --set, which the user may repeat.
void add_set_flag(CLI::App& app, std::vector<std::string>& set);

// Checks the flags and sets quiet, threads and precision. Returns the device. Throws a UserError with every
// problem.
c10::Device begin_execution(const Execution& execution);

}  // namespace draftsmith::cli
