#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

bool has_hdf5_format(const std::filesystem::path& file, const std::string& format) {
  try {
    return Hdf5Reader(file).format() == format;
  } catch (const UserError&) {
    return false;
  }
}

void Hdf5Checks::check_format() const {
  const std::string format = input_.format();
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

void Hdf5Checks::check_offsets(const std::string& name, std::span<const int64_t> offsets, int64_t last) const {
  const auto place = [&](size_t i) { return fmt::format("{}[{}]", name, i); };
  check_equal(place(0), 0, offsets.front());
  int64_t least = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    // Composes an error's text only if there is an error.
    if (offsets[i] < least || offsets[i] > last) check_range(place(i), offsets[i], least, last);
    least = offsets[i];
  }
  check_equal(place(offsets.size() - 1), last, offsets.back());
}

int64_t Hdf5Checks::number(const std::string& name, int64_t least, int64_t most) const {
  const int64_t value = input_.integer_attribute("/", name);
  check_range("attribute " + name, value, least, most);
  return value;
}

void Hdf5Checks::check_shape(const std::string& name, Hdf5Type type, const std::vector<int64_t>& lengths) const {
  const std::vector<int64_t> found = input_.shape(name, type, std::ssize(lengths));
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) continue;
    check_equal(fmt::format("number of {} of {}", i == 0 ? "values or rows" : "columns", name), lengths[i], found[i]);
  }
}

}  // namespace draftsmith::data
