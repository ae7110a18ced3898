#include "base/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith {

Problem unknown_name(const std::string& subject, const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  return {.where = subject,
          .what = fmt::format("there is no {} of this name", subject),
          .expected = fmt::format("one of {}", fmt::join(known, ", ")),
          .found = name.substr(0, 100),
          .hint = near.empty() ? "" : fmt::format("did you mean {}?", near)};
}

}  // namespace draftsmith
