#include "infer/decode_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::infer {

const Method& DecodeOptions::method_info() const {
  static const Method kUnknown;
  const Method* found = decoding_methods().find(method);
  return found == nullptr ? kUnknown : *found;
}

std::string DecodeOptions::window_rule_name() const {
  return drafts() && !window_rule.empty() ? window_rule : method_info().window_rule;
}

std::string DecodeOptions::acceptance_name() const {
  return drafts() && !acceptance.empty() ? acceptance : method_info().acceptance;
}

bool DecodeOptions::reads(const Field& field) const {
  if (!field.read_by) return true;
  const auto& [part, names] = *field.read_by;
  const std::string in_use = part == "window_rule"  ? window_rule_name()
                             : part == "acceptance" ? acceptance_name()
                                                    : method;
  return std::find(names.begin(), names.end(), in_use) != names.end();
}

std::string readers_of(const Field& field) {
  return fmt::format("{} {}", field.read_by->part, fmt::join(field.read_by->names, ", "));
}

}  // namespace draftsmith::infer
