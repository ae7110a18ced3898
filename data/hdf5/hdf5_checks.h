// What the readers of our HDF5 files refuse, in one form: where, what, expected, found, and how to make the file again.
#pragma once

#include <string>

#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

// A format by which files of one kind know each other: attributes `format` and `format_version` of the root.
struct Hdf5Format {
  const char* name;
  int64_t version;
  const char* what;    // "a teacher cache", as messages call such a file
  const char* remake;  // what makes it again
};

// Base of readers.
class Hdf5Checks {
 protected:
  Hdf5Checks(const Hdf5Reader& input, const Hdf5Format& format) : input_(input), format_(format) {}

  // That it is of this format and version. Errors: UserError, as of all checks.
  void check_format() const;
  void check(bool good, const std::string& what, const std::string& expected, const std::string& found) const;
  void check_equal(const std::string& what, int64_t expected, int64_t found) const;
  void check_range(const std::string& what, int64_t value, int64_t least, int64_t most) const;

  const Hdf5Reader& input_;

 private:
  const Hdf5Format& format_;
};

}  // namespace draftsmith::data
