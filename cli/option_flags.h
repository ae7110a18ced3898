// Flags made from an options struct's list of fields: `max_draft` becomes --max-draft, with the help, range and choices
// that the configuration files have. A list field's flag is repeated for each element; a true/false field's flag takes
// no value (or =false).
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/options.h"

namespace draftsmith::cli {

// Type-erased part of OptionFlags.
class FieldFlags {
 public:
  // Adds one flag for each field that is no nested table and not in `except`; `defaults` is shown in the help.
  FieldFlags(CLI::App& app, FieldList fields, void* defaults, const std::set<std::string>& except);

  // Whether the flag of field `name` was on the command line.
  bool given(const std::string& name) const;
  // Reads the flags given into `object`, then checks it as a whole.
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
  // Defaults shown and kept are those of `defaults`. Fields named in `except` get no flag.
  explicit OptionFlags(CLI::App& app, T defaults = {}, const std::set<std::string>& except = {})
      : defaults_(std::move(defaults)), flags_(app, T::fields(), &defaults_, except) {}

  bool given(const std::string& name) const { return flags_.given(name); }

  // The options after CLI parsing. Adds problems for wrong values.
  T value(Problems& problems) const {
    T options = defaults_;
    flags_.parse_into(&options, problems);
    return options;
  }

 private:
  T defaults_;
  FieldFlags flags_;
};

// "max_draft" -> "--max-draft".
std::string flag_name(const std::string& field_name);

}  // namespace draftsmith::cli
