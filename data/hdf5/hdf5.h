// Reads and writes HDF5 files with checked types and shapes.
//
// A writer uses a temporary name and renames the file at the end. Arrays are contiguous and uncompressed, and readers
// map them into memory. Errors are UserError (reading) or RunError (writing) and name file and dataset; HDF5's own
// error stack is silenced. Debian's library is serial: only one thread may use HDF5 at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/files.h"

namespace draftsmith::data {

// The bits of a bf16 value. fp16 values are IEEE binary16 bits in uint16_t.
enum class BFloat16 : uint16_t {};

enum class Hdf5Type { kInt32, kInt64, kFloat16, kBFloat16, kFloat32 };

// Returns the element type of a dataset of T.
template <class T>
constexpr Hdf5Type hdf5_type() {
  if constexpr (std::is_same_v<T, int32_t>) return Hdf5Type::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return Hdf5Type::kInt64;
  if constexpr (std::is_same_v<T, uint16_t>) return Hdf5Type::kFloat16;
  if constexpr (std::is_same_v<T, BFloat16>) return Hdf5Type::kBFloat16;
  if constexpr (std::is_same_v<T, float>) return Hdf5Type::kFloat32;
}

// A file format: the attributes `format` and `format_version` of the root, and its name in messages.
struct Hdf5Format {
  const char* name;
  int64_t version;
  const char* what;    // name in messages, such as "a teacher cache"
  const char* remake;  // command or stage that makes such a file
};

class Hdf5Writer {
 public:
  // Writes under a temporary name; `file` exists only after finish(). Errors: UserError if the folder does not exist,
  // RunError if writing fails.
  explicit Hdf5Writer(const std::filesystem::path& file);
  ~Hdf5Writer();  // removes the temporary file if finish() was not called
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // Writes a dataset [rows] (`columns` 0) or [rows,columns], and its groups, of values or of pieces of whole rows.
  template <class T>
  void write_array(const std::string& name, const std::vector<std::span<const T>>& pieces, int64_t columns = 0) {
    std::vector<std::span<const std::byte>> bytes;
    for (const auto& piece : pieces) bytes.push_back(std::as_bytes(piece));
    write_bytes(name, hdf5_type<T>(), bytes, columns);
  }
  template <class T>
  void write_array(const std::string& name, std::span<const T> values, int64_t columns = 0) {
    write_array(name, std::vector{values}, columns);
  }
  // Sets an attribute of an object ("/" is the root); creates missing groups.
  void set_attribute(const std::string& object, const std::string& name, int64_t value);
  void set_attribute(const std::string& object, const std::string& name, const std::string& value);
  // Sets format and version, and the free text pairs of a group /provenance.
  void set_format(const Hdf5Format& format, const std::map<std::string, std::string>& provenance);
  // Closes the file, syncs it to disk and renames it.
  void finish();

 private:
  void write_bytes(const std::string& name, Hdf5Type type, const std::vector<std::span<const std::byte>>& pieces,
                   int64_t columns);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads one of our files. Every check throws a UserError that says how to make the file again.
class Hdf5Reader {
 public:
  // Errors: UserError for a missing or truncated file, one that is not HDF5, and another format or version. The format
  // must outlive this.
  Hdf5Reader(const std::filesystem::path& file, const Hdf5Format& format);
  ~Hdf5Reader();

  // Returns an attribute of the root. Errors: UserError for a missing one, one of another type or out of range.
  int64_t number(const std::string& name, int64_t least, int64_t most) const;
  std::string text(const std::string& name) const;
  // Returns whether there is such a dataset or group.
  bool has(const std::string& name) const;
  // Returns the text pairs of the group /provenance.
  std::map<std::string, std::string> provenance() const;
  // Returns the values of a dataset of these lengths (-1: any), valid as long as a copy of mapping(). Errors: UserError
  // for another type or shape, for a dataset outside the file, and for one that is chunked, compressed, of other byte
  // order or not aligned to its values.
  template <class T>
  std::span<const T> values(const std::string& name, const std::vector<int64_t>& lengths) const {
    const Place place = place_of(name, hdf5_type<T>(), lengths);
    return mapping_.values<T>(place.offset, place.count);
  }
  const MappedFile& mapping() const { return mapping_; }

  void check(bool good, const std::string& what, const std::string& expected, const std::string& found) const;
  void check_equal(const std::string& what, int64_t expected, int64_t found) const;
  void check_range(const std::string& what, int64_t value, int64_t least, int64_t most) const;
  // Returns offsets [count + 1] after checking that they rise from 0 to `last`.
  std::span<const int64_t> offsets(const std::string& name, int64_t count, int64_t last) const;

 private:
  // Position of a dataset in its file.
  struct Place {
    int64_t offset = 0;  // bytes from the beginning of the file; 0 for an empty dataset
    int64_t count = 0;   // values
  };
  Place place_of(const std::string& name, Hdf5Type type, const std::vector<int64_t>& lengths) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  MappedFile mapping_;
};

// Returns whether `file` is an HDF5 file whose attribute "format" of / is the format's name.
bool has_hdf5_format(const std::filesystem::path& file, const Hdf5Format& format);

}  // namespace draftsmith::data
