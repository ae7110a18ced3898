// Reads and writes HDF5 files with checked types and shapes.
//
// A writer uses a temporary name and renames the file at the end. A reader checks type, rank and plausible size of a
// dataset before it allocates memory. Errors are UserError (reading) or RunError (writing) and name file and dataset;
// HDF5's own error stack is silenced. Debian's library is serial: only one thread may use HDF5 at a time.
//
// Arrays that are read at random, such as a corpus, are contiguous and uncompressed, so that they can be mapped into
// memory (write_array, create_plain, place). Datasets that grow are chunked and compressed by shuffle and deflate 1: of
// ids of the synthetic language .96 bytes a token, 30 million tokens/s written and 73 read by one core.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "base/files.h"

namespace draftsmith::data {

// fp16 values are IEEE binary16 bits in uint16_t.
enum class Hdf5Type { kInt32, kInt64, kFloat16, kFloat32 };

// Returns the element type of a dataset of T.
template <class T>
constexpr Hdf5Type hdf5_type() {
  if constexpr (std::is_same_v<T, int32_t>) return Hdf5Type::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return Hdf5Type::kInt64;
  if constexpr (std::is_same_v<T, uint16_t>) return Hdf5Type::kFloat16;
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
  // Writes under a temporary name; `file` exists only after finish(). Datasets begin at multiples of `alignment` bytes,
  // which mapped datasets need. Errors: UserError if the folder does not exist, RunError if writing fails.
  explicit Hdf5Writer(const std::filesystem::path& file, int64_t alignment = 1);
  ~Hdf5Writer();  // removes the temporary file if finish() was not called
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // Creates a dataset [rows] (`columns` 0) or [rows,columns] that grows by append(), and its groups. Returns the handle
  // for append().
  size_t create(const std::string& name, Hdf5Type type, int64_t columns = 0);
  // Creates a contiguous, uncompressed dataset with a known number of rows, which can be mapped into memory. finish()
  // throws std::logic_error if another number of rows was appended.
  size_t create_plain(const std::string& name, Hdf5Type type, int64_t rows, int64_t columns = 0);
  // Appends whole rows. Buffers at most a few chunks.
  template <class T>
  void append(size_t dataset, std::span<const T> values) {
    append_bytes(dataset, hdf5_type<T>(), values.data(), static_cast<int64_t>(values.size()));
  }
  // Writes a whole one-dimensional dataset that can be mapped into memory, in pieces that fit into memory.
  template <class T>
  void write_array(const std::string& name, std::span<const T> values) {
    constexpr size_t kPiece = size_t{1} << 20;
    const size_t dataset = create_plain(name, hdf5_type<T>(), static_cast<int64_t>(values.size()));
    for (size_t first = 0; first < values.size(); first += kPiece) {
      append(dataset, values.subspan(first, std::min(kPiece, values.size() - first)));
    }
  }
  // Sets an attribute of an object ("/" is the root); creates missing groups.
  void set_attribute(const std::string& object, const std::string& name, int64_t value);
  void set_attribute(const std::string& object, const std::string& name, const std::string& value);
  // Sets format and version, and the free text pairs of a group /provenance.
  void set_format(const Hdf5Format& format, const std::map<std::string, std::string>& provenance);
  // Writes all buffers, closes the file, syncs it to disk and renames it.
  void finish();

 private:
  void append_bytes(size_t index, Hdf5Type type, const void* values, int64_t count);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Position of a contiguous dataset in its file.
struct Hdf5Place {
  int64_t offset = 0;  // bytes from the beginning of the file; 0 for an empty dataset
  int64_t count = 0;   // values
};

class Hdf5Reader {
 public:
  // Errors: UserError for a missing or truncated file, or one that is not HDF5.
  explicit Hdf5Reader(const std::filesystem::path& file);
  ~Hdf5Reader();
  Hdf5Reader(Hdf5Reader&&) noexcept;

  // Returns the shape of a dataset. Errors: UserError if it is missing, has another type or rank, or claims more
  // elements than its stored bytes can hold.
  std::vector<int64_t> shape(const std::string& name, Hdf5Type type, int64_t rank) const;
  // Returns the position of a dataset that write_array() or create_plain() wrote, so that it can be mapped into memory.
  // Errors: UserError as in shape(), for one outside the file, and for one that is chunked, compressed, of other byte
  // order or not aligned to its values.
  Hdf5Place place(const std::string& name, Hdf5Type type, int64_t rank = 1) const;
  // Returns all rows, or rows [first, first + rows), of a dataset after the checks of shape().
  template <class T>
  std::vector<T> read(const std::string& name, int64_t rank = 1) const {
    const std::vector<int64_t> extent = shape(name, hdf5_type<T>(), rank);
    return read_rows<T>(name, rank, 0, extent[0]);
  }
  template <class T>
  std::vector<T> read_rows(const std::string& name, int64_t rank, int64_t first, int64_t rows) const {
    const std::vector<int64_t> extent = shape(name, hdf5_type<T>(), rank);
    if (first < 0 || rows < 0 || first > extent[0] - rows) throw std::out_of_range("rows outside dataset " + name);
    std::vector<T> values(static_cast<size_t>(rows * (rank == 2 ? extent[1] : 1)));
    read_bytes(name, hdf5_type<T>(), {first, rows, rank == 2 ? extent[1] : 0}, values.data());
    return values;
  }
  // Returns the root's attribute "format"; empty if there is none.
  std::string format() const;
  // Errors: UserError for a missing attribute or one of another type.
  int64_t integer_attribute(const std::string& object, const std::string& name) const;
  std::string string_attribute(const std::string& object, const std::string& name) const;
  // Returns all string attributes of an object; empty if the object does not exist.
  std::map<std::string, std::string> string_attributes(const std::string& object) const;
  const std::filesystem::path& file() const;

 private:
  struct Rows {
    int64_t first;
    int64_t count;
    int64_t columns;  // 0: one-dimensional
  };
  void read_bytes(const std::string& name, Hdf5Type type, Rows rows, void* values) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns whether `file` is an HDF5 file whose attribute "format" of / has this value.
bool has_hdf5_format(const std::filesystem::path& file, const std::string& format);

// Base class of readers of our files: checks with errors of one form that say how to make the file again. Each check
// throws a UserError.
class Hdf5Checks {
 protected:
  Hdf5Checks(const Hdf5Reader& input, const Hdf5Format& format) : input_(input), format_(format) {}

  // Checks format and version.
  void check_format() const;
  void check(bool good, const std::string& what, const std::string& expected, const std::string& found) const;
  void check_equal(const std::string& what, int64_t expected, int64_t found) const;
  void check_range(const std::string& what, int64_t value, int64_t least, int64_t most) const;
  // Checks that offsets rise from 0 to `last`.
  void check_offsets(const std::string& name, std::span<const int64_t> offsets, int64_t last) const;
  // Returns an attribute of the root.
  int64_t number(const std::string& name, int64_t least, int64_t most) const;
  // Checks a dataset's type and lengths; -1 stands for any.
  void check_shape(const std::string& name, Hdf5Type type, const std::vector<int64_t>& lengths) const;
  // Returns the values of a dataset, valid as long as the mapping, after the checks of check_shape().
  template <class T>
  std::span<const T> mapped(const MappedFile& mapping, const std::string& name,
                            const std::vector<int64_t>& lengths) const {
    check_shape(name, hdf5_type<T>(), lengths);
    const Hdf5Place place = input_.place(name, hdf5_type<T>(), std::ssize(lengths));
    return mapping.values<T>(place.offset, place.count);
  }

  const Hdf5Reader& input_;

 private:
  const Hdf5Format& format_;
};

}  // namespace draftsmith::data
