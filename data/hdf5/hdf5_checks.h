// Checks that all readers of our HDF5 files share. Their errors have one form and say how to make the file again.
#pragma once

#include <string>

#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

// A file format: the attributes `format` and `format_version` of the root, and its name in messages.
struct Hdf5Format {
  const char* name;
  int64_t version;
  const char* what;    // name in messages, such as "a teacher cache"
  const char* remake;  // command or stage that makes such a file
};

// Base class of readers. Each check throws a UserError.
class Hdf5Checks {
 protected:
  Hdf5Checks(const Hdf5Reader& input, const Hdf5Format& format) : input_(input), format_(format) {}

  // Checks format and version.
  void check_format() const;
  void check(bool good, const std::string& what, const std::string& expected, const std::string& found) const;
  void check_equal(const std::string& what, int64_t expected, int64_t found) const;
  void check_range(const std::string& what, int64_t value, int64_t least, int64_t most) const;

  const Hdf5Reader& input_;

 private:
  const Hdf5Format& format_;
};

}  // namespace draftsmith::data
