#include "data/hdf5/hdf5.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <hdf5.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/utf8.h"

namespace draftsmith::data {
namespace {

constexpr const char* kProvenance = "/provenance";

// An HDF5 identifier and the function that closes it. Negative identifiers are invalid and not closed.
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Handle() { reset(); }
  bool valid() const { return id_ >= 0; }
  hid_t id() const { return id_; }
  // Closes the identifier. Returns false if closing failed, for example because the disk is full.
  bool reset() {
    const hid_t id = std::exchange(id_, -1);
    return id < 0 || close_(id) >= 0;
  }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

herr_t keep_innermost(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// Returns a type of 16 bits with an exponent of so many: 5 for IEEE binary16, 8 for bf16. HDF5 1.10 has no predefined
// type for them, so they are derived from binary32. Sign bit 15, then the exponent, mantissa from bit 0.
hid_t half_type(size_t exponent) {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 15 - exponent, exponent, 0, 15 - exponent);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, (size_t{1} << (exponent - 1)) - 1);
  return type;
}

// Stops HDF5 from printing its error stack, for the rest of the program: exceptions report all failures.
void silence_hdf5() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

// Returns the innermost description on HDF5's error stack, or an empty text.
std::string hdf5_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  return text;
}

// Returns the type of a dataset, little endian in the file and in memory.
Hdf5Handle hdf5_datatype(Hdf5Type type) {
  if (type == Hdf5Type::kFloat16) return Hdf5Handle(half_type(5), H5Tclose);
  if (type == Hdf5Type::kBFloat16) return Hdf5Handle(half_type(8), H5Tclose);
  const hid_t plain = type == Hdf5Type::kInt32   ? H5T_STD_I32LE
                      : type == Hdf5Type::kInt64 ? H5T_STD_I64LE
                                                 : H5T_IEEE_F32LE;
  return Hdf5Handle(H5Tcopy(plain), H5Tclose);
}

std::string type_name(hid_t type) {
  const size_t bits = 8 * H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return (H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int") + std::to_string(bits);
    case H5T_FLOAT:
      return (bits == 16 && H5Tget_ebias(type) == 127 ? "bfloat" : "float") + std::to_string(bits);
    case H5T_STRING:
      return "string";
    default:
      return "a type of another class";
  }
}

// Opens a file for reading. Errors: UserError.
Hdf5Handle open_file(const std::filesystem::path& file) {
  silence_hdf5();
  const auto fail = [&](const std::string& what, const std::string& expected, const std::string& found) {
    throw UserError({.where = file.string(), .what = what, .expected = expected, .found = found});
  };
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) fail("no such file", "an HDF5 file", "");
  if (H5Fis_hdf5(file.c_str()) <= 0) fail("not an HDF5 file", "the HDF5 signature at the start of the file", "");
  Hdf5Handle handle(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!handle.valid()) fail("damaged or truncated HDF5 file", "a whole HDF5 file", hdf5_error());
  return handle;
}

}  // namespace

struct Hdf5Reader::Impl {
  std::filesystem::path file;
  const Hdf5Format& format;
  Hdf5Handle handle;

  [[noreturn]] void fail(const std::string& what, const std::string& expected = "",
                         const std::string& found = "") const {
    throw UserError({.where = file.string(),
                     .what = what,
                     .expected = expected,
                     .found = found,
                     .hint = fmt::format("the file is damaged or not {} of this version; make it again with {}",
                                         format.what, format.remake)});
  }

  bool exists(const std::string& name) const {
    if (name == "/") return true;
    for (size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      if (H5Lexists(handle.id(), name.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
    }
    return H5Lexists(handle.id(), name.c_str(), H5P_DEFAULT) > 0;
  }

  Hdf5Handle open_attribute(const std::string& object, const std::string& name) const {
    Hdf5Handle attribute(H5Aopen_by_name(handle.id(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
    if (!attribute.valid()) fail("no attribute " + name + " of " + object, "", hdf5_error());
    const Hdf5Handle space(H5Aget_space(attribute.id()), H5Sclose);
    if (H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) {
      fail("attribute " + name + " of " + object + " has another shape", "one value");
    }
    return attribute;
  }

  // Returns a string attribute of fixed length.
  std::string text(const std::string& object, const std::string& name) const {
    const Hdf5Handle attribute = open_attribute(object, name);
    const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose);
    if (H5Tget_class(type.id()) != H5T_STRING) fail("attribute " + name, "a string", type_name(type.id()));
    // HDF5 1.10 reads outside its memory for a damaged string of variable length. Our files have none.
    if (H5Tis_variable_str(type.id()) > 0) {
      fail("attribute " + name, "a string of fixed length", "one of variable length");
    }
    std::string text(H5Tget_size(type.id()), '\0');
    if (H5Aread(attribute.id(), type.id(), text.data()) < 0) fail("cannot read attribute " + name, "", hdf5_error());
    return text.substr(0, text.find('\0'));
  }

  // Returns the root's attribute "format"; empty if there is none.
  std::string format_name() const {
    const bool there = H5Aexists_by_name(handle.id(), "/", "format", H5P_DEFAULT) > 0;
    return there ? text("/", "format") : "";
  }
};

Hdf5Reader::Hdf5Reader(const std::filesystem::path& file, const Hdf5Format& format)
    : impl_(std::make_unique<Impl>(file, format, open_file(file))), mapping_(file) {
  const std::string found = impl_->format_name();
  check(found == format.name, fmt::format("not {}", format.what), fmt::format("attribute format \"{}\"", format.name),
        found.empty() ? "no such attribute" : printable(found));
  check_equal("another format version", format.version, number("format_version", 0, INT64_MAX));
}

Hdf5Reader::~Hdf5Reader() = default;

int64_t Hdf5Reader::number(const std::string& name, int64_t least, int64_t most) const {
  const Hdf5Handle attribute = impl_->open_attribute("/", name);
  const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose);
  if (H5Tget_class(type.id()) != H5T_INTEGER) impl_->fail("attribute " + name, "an integer", type_name(type.id()));
  int64_t value = 0;
  if (H5Aread(attribute.id(), H5T_NATIVE_INT64, &value) < 0) {
    impl_->fail("cannot read attribute " + name, "", hdf5_error());
  }
  check_range("attribute " + name, value, least, most);
  return value;
}

std::string Hdf5Reader::text(const std::string& name) const {
  return impl_->text("/", name);
}

bool Hdf5Reader::has(const std::string& name) const {
  return impl_->exists(name);
}

std::map<std::string, std::string> Hdf5Reader::provenance() const {
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* names) -> herr_t {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  };
  std::vector<std::string> names;
  std::map<std::string, std::string> pairs;
  if (!impl_->exists(kProvenance)) return pairs;
  hsize_t position = 0;
  H5Aiterate_by_name(impl_->handle.id(), kProvenance, H5_INDEX_NAME, H5_ITER_INC, &position, +add, &names, H5P_DEFAULT);
  for (const std::string& name : names) pairs[name] = impl_->text(kProvenance, name);
  return pairs;
}

Hdf5Reader::Place Hdf5Reader::place_of(const std::string& name, Hdf5Type type,
                                       const std::vector<int64_t>& lengths) const {
  if (!impl_->exists(name)) impl_->fail("no dataset " + name);
  const Hdf5Handle dataset(H5Dopen2(impl_->handle.id(), name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) impl_->fail("cannot open " + name, "a dataset", hdf5_error());
  const Hdf5Handle stored(H5Dget_type(dataset.id()), H5Tclose);
  const Hdf5Handle wanted = hdf5_datatype(type);
  const Hdf5Handle layout(H5Dget_create_plist(dataset.id()), H5Pclose);
  const bool plain = H5Pget_layout(layout.id()) == H5D_CONTIGUOUS && H5Pget_external_count(layout.id()) == 0;
  if (!plain || H5Tequal(stored.id(), wanted.id()) <= 0) {
    impl_->fail("dataset " + name + " cannot be mapped into memory",
                "a contiguous, uncompressed dataset of little-endian " + type_name(wanted.id()),
                (plain ? "" : "another layout of ") + type_name(stored.id()));
  }
  const Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose);
  check_equal("rank of " + name, std::ssize(lengths), H5Sget_simple_extent_ndims(space.id()));
  std::vector<hsize_t> extent(lengths.size());
  H5Sget_simple_extent_dims(space.id(), extent.data(), nullptr);
  int64_t count = 1;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto found = static_cast<int64_t>(extent[i]);
    const std::string what = fmt::format("number of {} of {}", i == 0 ? "values or rows" : "columns", name);
    if (lengths[i] >= 0) check_equal(what, lengths[i], found);
    if (__builtin_mul_overflow(count, found, &count)) impl_->fail("dataset " + name + " claims more than fits a file");
  }
  if (count == 0) return {};
  const haddr_t offset = H5Dget_offset(dataset.id());
  const uint64_t size = H5Tget_size(wanted.id());
  const auto file_bytes = static_cast<uint64_t>(mapping_.bytes());
  if (offset == HADDR_UNDEF || offset > file_bytes || static_cast<uint64_t>(count) > (file_bytes - offset) / size ||
      offset % size != 0) {
    impl_->fail("dataset " + name + " does not lie inside the file", "a whole file", "a damaged or truncated one");
  }
  return {static_cast<int64_t>(offset), count};
}

void Hdf5Reader::check(bool good, const std::string& what, const std::string& expected,
                       const std::string& found) const {
  if (!good) impl_->fail(what, expected, found);
}

void Hdf5Reader::check_equal(const std::string& what, int64_t expected, int64_t found) const {
  check(expected == found, what, std::to_string(expected), std::to_string(found));
}

void Hdf5Reader::check_range(const std::string& what, int64_t value, int64_t least, int64_t most) const {
  check(value >= least && value <= most, what, fmt::format("{} to {}", least, most), std::to_string(value));
}

std::span<const int64_t> Hdf5Reader::offsets(const std::string& name, int64_t count, int64_t last) const {
  const auto offsets = values<int64_t>(name, {count + 1});
  const auto place = [&](size_t i) { return fmt::format("{}[{}]", name, i); };
  check_equal(place(0), 0, offsets.front());
  int64_t least = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    // Composes an error's text only if there is an error.
    if (offsets[i] < least || offsets[i] > last) check_range(place(i), offsets[i], least, last);
    least = offsets[i];
  }
  check_equal(place(offsets.size() - 1), last, offsets.back());
  return offsets;
}

bool has_hdf5_format(const std::filesystem::path& file, const Hdf5Format& format) {
  try {
    const Hdf5Reader reader(file, format);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

namespace {

constexpr int64_t kAlignment = 8;  // of datasets in the file: the widest values, for mapping

// Returns creation properties without time stamps, so that equal content gives equal files.
Hdf5Handle timeless(hid_t kind) {
  Hdf5Handle properties(H5Pcreate(kind), H5Pclose);
  H5Pset_obj_track_times(properties.id(), false);
  return properties;
}

// Creates the missing groups above `path`, or `path` itself if it is a group.
void make_groups(hid_t file, const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string group = path.substr(0, slash);
    if (H5Lexists(file, group.c_str(), H5P_DEFAULT) > 0) continue;
    const Hdf5Handle created(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, timeless(H5P_GROUP_CREATE).id(), H5P_DEFAULT),
                             H5Gclose);
  }
}

}  // namespace

struct Hdf5Writer::Impl {
  explicit Impl(const std::filesystem::path& name) : file(name) {}

  AtomicPath file;
  Hdf5Handle handle;

  [[noreturn]] void fail(const std::string& what) const {
    throw RunError({.where = file.final_path().string(),
                    .what = what,
                    .found = hdf5_error(),
                    .hint = "is there space and permission to write beside it?"});
  }

  void check(bool good, const std::string& what) const {
    if (!good) fail(what);
  }

  void write_attribute(const std::string& object, const std::string& name, hid_t type, const void* value) const {
    make_groups(handle.id(), object + "/");
    const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const Hdf5Handle attribute(H5Acreate_by_name(handle.id(), object.c_str(), name.c_str(), type, space.id(),
                                                 H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                               H5Aclose);
    check(attribute.valid() && H5Awrite(attribute.id(), type, value) >= 0, "cannot write attribute " + name);
  }
};

Hdf5Writer::Hdf5Writer(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {
  silence_hdf5();
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  H5Pset_alignment(access.id(), 1, kAlignment);
  impl_->handle = Hdf5Handle(
      H5Fcreate(impl_->file.temporary().c_str(), H5F_ACC_TRUNC, timeless(H5P_FILE_CREATE).id(), access.id()), H5Fclose);
  if (!impl_->handle.valid()) impl_->fail("cannot create the file");
}

Hdf5Writer::~Hdf5Writer() = default;

void Hdf5Writer::write_bytes(const std::string& name, Hdf5Type type,
                             const std::vector<std::span<const std::byte>>& pieces, int64_t columns) {
  const Hdf5Handle element = hdf5_datatype(type);
  const size_t row = H5Tget_size(element.id()) * static_cast<size_t>(std::max<int64_t>(1, columns));  // bytes
  std::array<hsize_t, 2> extent = {0, static_cast<hsize_t>(columns)};
  for (const auto& piece : pieces) {
    if (piece.size() % row != 0) throw std::logic_error("an incomplete row of " + name);
    extent[0] += piece.size() / row;
  }
  const int rank = columns == 0 ? 1 : 2;
  make_groups(impl_->handle.id(), name);
  const Hdf5Handle space(H5Screate_simple(rank, extent.data(), nullptr), H5Sclose);
  const Hdf5Handle layout = timeless(H5P_DATASET_CREATE);
  H5Pset_layout(layout.id(), H5D_CONTIGUOUS);
  Hdf5Handle dataset(
      H5Dcreate2(impl_->handle.id(), name.c_str(), element.id(), space.id(), H5P_DEFAULT, layout.id(), H5P_DEFAULT),
      H5Dclose);
  impl_->check(dataset.valid(), "cannot create dataset " + name);
  std::array<hsize_t, 2> start{};
  for (const auto& piece : pieces) {
    work_point();
    if (piece.empty()) continue;
    extent[0] = piece.size() / row;
    const Hdf5Handle memory(H5Screate_simple(rank, extent.data(), nullptr), H5Sclose);
    H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr);
    impl_->check(H5Dwrite(dataset.id(), element.id(), memory.id(), space.id(), H5P_DEFAULT, piece.data()) >= 0,
                 "cannot write dataset " + name);
    start[0] += extent[0];
  }
  impl_->check(dataset.reset(), "cannot finish dataset " + name);
}

void Hdf5Writer::set_attribute(const std::string& object, const std::string& name, int64_t value) {
  const Hdf5Handle type = hdf5_datatype(Hdf5Type::kInt64);
  impl_->write_attribute(object, name, type.id(), &value);
}

void Hdf5Writer::set_attribute(const std::string& object, const std::string& name, const std::string& value) {
  const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  // Writes a string of fixed length: HDF5 1.10 reads outside its memory for a damaged string of variable length.
  H5Tset_size(type.id(), value.size() + 1);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  impl_->write_attribute(object, name, type.id(), value.c_str());
}

void Hdf5Writer::set_format(const Hdf5Format& format, const std::map<std::string, std::string>& provenance) {
  set_attribute("/", "format", format.name);
  set_attribute("/", "format_version", format.version);
  for (const auto& [key, value] : provenance) set_attribute(kProvenance, key, value);
}

void Hdf5Writer::finish() {
  impl_->check(H5Fflush(impl_->handle.id(), H5F_SCOPE_GLOBAL) >= 0, "cannot write the file");
  impl_->check(impl_->handle.reset(), "cannot close the file");
  impl_->file.commit();
}

}  // namespace draftsmith::data
