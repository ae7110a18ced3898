#include "data/hdf5/hdf5_checks.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace draftsmith::data {

void Hdf5Checks::check_format() const {
  const std::string format = input_.has_attribute("/", "format") ? input_.string_attribute("/", "format") : "";
  check(format == format_.name, fmt::format("not {}", format_.what),
        fmt::format("attribute format \"{}\"", format_.name), format.empty() ? "no such attribute" : printable(format));
  check_equal("another format version", format_.version, input_.integer_attribute("/", "format_version"));
}

void Hdf5Checks::check(bool good, const std::string& what, const std::string& expected,
                       const std::string& found) const {
  if (good) return;
  throw UserError({.where = input_.file().string(),
                   .what = what,
                   .expected = expected,
                   .found = found,
                   .hint = fmt::format("the file is damaged or not {} of this version; make it again with {}",
                                       format_.what, format_.remake)});
}

void Hdf5Checks::check_equal(const std::string& what, int64_t expected, int64_t found) const {
  check(expected == found, what, std::to_string(expected), std::to_string(found));
}

void Hdf5Checks::check_range(const std::string& what, int64_t value, int64_t least, int64_t most) const {
  check(value >= least && value <= most, what, fmt::format("{} to {}", least, most), std::to_string(value));
}

}  // namespace draftsmith::data
