#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

namespace {

// Deflate cannot shrink data by more than about 1,032 to 1. A file that claims more is damaged or hostile.
constexpr double kMaxCompression = 1100;

std::string type_name(hid_t type) {
  const size_t bits = 8 * H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return (H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int") + std::to_string(bits);
    case H5T_FLOAT:
      return "float" + std::to_string(bits);
    case H5T_STRING:
      return "string";
    default:
      return "a type of another class";
  }
}

}  // namespace

struct Hdf5Reader::Impl {
  std::filesystem::path file;
  Hdf5Handle handle;

  [[noreturn]] void fail(const std::string& what, const std::string& expected = "",
                         const std::string& found = "") const {
    throw UserError({.where = file.string(), .what = what, .expected = expected, .found = found});
  }

  bool exists(const std::string& name) const {
    if (name == "/") return true;
    for (size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      if (H5Lexists(handle.id(), name.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
    }
    return H5Lexists(handle.id(), name.c_str(), H5P_DEFAULT) > 0;
  }

  Hdf5Handle open_dataset(const std::string& name) const {
    if (!exists(name)) fail("no dataset " + name);
    Hdf5Handle dataset(H5Dopen2(handle.id(), name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset.valid()) fail("cannot open " + name, "a dataset", hdf5_error());
    return dataset;
  }

  Hdf5Handle open_attribute(const std::string& object, const std::string& name) const {
    const Hdf5Handle opened(exists(object) ? H5Oopen(handle.id(), object.c_str(), H5P_DEFAULT) : -1, H5Oclose);
    if (!opened.valid() || H5Aexists(opened.id(), name.c_str()) <= 0) fail("no attribute " + name + " of " + object);
    Hdf5Handle attribute(H5Aopen(opened.id(), name.c_str(), H5P_DEFAULT), H5Aclose);
    if (!attribute.valid()) fail("cannot open attribute " + name + " of " + object, "", hdf5_error());
    const Hdf5Handle space(H5Aget_space(attribute.id()), H5Sclose);
    if (H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) {
      fail("attribute " + name + " of " + object + " has another shape", "one value");
    }
    return attribute;
  }

  // Returns the text of an open string attribute of fixed length.
  std::string attribute_text(const Hdf5Handle& attribute, const std::string& name) const {
    const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose);
    if (H5Tget_class(type.id()) != H5T_STRING) fail("attribute " + name, "a string", type_name(type.id()));
    // HDF5 1.10 reads outside its memory for a damaged string of variable length. Our files have none.
    if (H5Tis_variable_str(type.id()) > 0)
      fail("attribute " + name, "a string of fixed length", "one of variable length");
    std::string text(H5Tget_size(type.id()), '\0');
    if (H5Aread(attribute.id(), type.id(), text.data()) < 0) fail("cannot read attribute " + name, "", hdf5_error());
    return text.substr(0, text.find('\0'));
  }
};

Hdf5Reader::Hdf5Reader(const std::filesystem::path& file) : impl_(std::make_unique<Impl>()) {
  silence_hdf5();
  impl_->file = file;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) impl_->fail("no such file", "an HDF5 file");
  if (H5Fis_hdf5(file.c_str()) <= 0) {
    impl_->fail("not an HDF5 file", "the HDF5 signature at the start of the file");
  }
  impl_->handle = Hdf5Handle(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!impl_->handle.valid()) impl_->fail("damaged or truncated HDF5 file", "a whole HDF5 file", hdf5_error());
}

Hdf5Reader::~Hdf5Reader() = default;
Hdf5Reader::Hdf5Reader(Hdf5Reader&&) noexcept = default;

const std::filesystem::path& Hdf5Reader::file() const {
  return impl_->file;
}

bool Hdf5Reader::has(const std::string& name) const {
  return impl_->exists(name);
}

std::vector<std::string> Hdf5Reader::list(const std::string& group) const {
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* names) -> herr_t {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  };
  std::vector<std::string> names;
  if (!impl_->exists(group)) return names;
  H5Literate_by_name(impl_->handle.id(), group.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr, +add, &names, H5P_DEFAULT);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int64_t> Hdf5Reader::shape(const std::string& name, Hdf5Type type, int64_t rank) const {
  const Hdf5Handle dataset = impl_->open_dataset(name);
  const Hdf5Handle layout(H5Dget_create_plist(dataset.id()), H5Pclose);
  if (H5Pget_layout(layout.id()) == H5D_VIRTUAL || H5Pget_external_count(layout.id()) > 0) {
    impl_->fail("dataset " + name + " stores its data in other files", "data inside the file itself");
  }
  const Hdf5Handle stored(H5Dget_type(dataset.id()), H5Tclose);
  const std::string found = type_name(stored.id());
  if (found != hdf5_name(type)) impl_->fail("dataset " + name + " has another type", hdf5_name(type), found);
  const Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const int dimensions = H5Sget_simple_extent_ndims(space.id());
  if (dimensions != rank) {
    impl_->fail("dataset " + name + " has another rank", std::to_string(rank), std::to_string(dimensions));
  }
  std::vector<hsize_t> extent(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.id(), extent.data(), nullptr);
  // The extent is untrusted and must not decide how much memory is allocated. The stored bytes bound it; as their sum
  // over a damaged index may be wrong too, the file's size bounds that.
  std::error_code ignored;
  const auto file_bytes = static_cast<double>(std::filesystem::file_size(impl_->file, ignored));
  const double stored_bytes = std::min(static_cast<double>(H5Dget_storage_size(dataset.id())), file_bytes);
  double bytes = static_cast<double>(hdf5_size(type));
  for (const hsize_t length : extent) bytes *= static_cast<double>(length);
  if (bytes > kMaxCompression * stored_bytes) {
    impl_->fail("dataset " + name + " claims more than its stored bytes can hold",
                "at most " + std::to_string(static_cast<int64_t>(kMaxCompression)) + " times the stored bytes",
                std::to_string(bytes) + " bytes claimed, " + std::to_string(stored_bytes) + " stored");
  }
  return {extent.begin(), extent.end()};
}

Hdf5Place Hdf5Reader::place(const std::string& name, Hdf5Type type, int64_t rank) const {
  int64_t count = 1;
  for (const int64_t length : shape(name, type, rank)) {
    if (__builtin_mul_overflow(count, length, &count)) impl_->fail("dataset " + name + " claims more than fits a file");
  }
  const Hdf5Handle dataset = impl_->open_dataset(name);
  const Hdf5Handle layout(H5Dget_create_plist(dataset.id()), H5Pclose);
  const Hdf5Handle stored(H5Dget_type(dataset.id()), H5Tclose);
  const auto refuse = [&] {
    impl_->fail("dataset " + name + " cannot be mapped into memory",
                "a contiguous, uncompressed dataset of aligned little-endian " + std::string(hdf5_name(type)),
                "another layout");
  };
  if (H5Pget_layout(layout.id()) != H5D_CONTIGUOUS) refuse();
  if (H5Tequal(stored.id(), hdf5_datatype(type).id()) <= 0) refuse();
  if (count == 0) return Hdf5Place{};
  const haddr_t offset = H5Dget_offset(dataset.id());
  const auto size = static_cast<uint64_t>(hdf5_size(type));
  std::error_code ignored;
  const auto file_bytes = static_cast<uint64_t>(std::filesystem::file_size(impl_->file, ignored));
  if (offset == HADDR_UNDEF || offset > file_bytes || static_cast<uint64_t>(count) > (file_bytes - offset) / size) {
    impl_->fail("dataset " + name + " does not lie inside the file", "a whole file", "a damaged or truncated one");
  }
  if (offset % size != 0) refuse();
  return Hdf5Place{static_cast<int64_t>(offset), count};
}

void Hdf5Reader::read_bytes(const std::string& name, Hdf5Type type, Rows rows, void* values) const {
  const Hdf5Handle dataset = impl_->open_dataset(name);
  const Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const int rank = rows.columns == 0 ? 1 : 2;
  const std::array<hsize_t, 2> start = {static_cast<hsize_t>(rows.first), 0};
  const std::array<hsize_t, 2> count = {static_cast<hsize_t>(rows.count), static_cast<hsize_t>(rows.columns)};
  if (rows.count == 0) return;
  const Hdf5Handle memory(H5Screate_simple(rank, count.data(), nullptr), H5Sclose);
  const Hdf5Handle element = hdf5_datatype(type);
  if (H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) < 0 ||
      H5Dread(dataset.id(), element.id(), memory.id(), space.id(), H5P_DEFAULT, values) < 0) {
    impl_->fail("cannot read dataset " + name, "", hdf5_error());
  }
}

bool Hdf5Reader::has_attribute(const std::string& object, const std::string& name) const {
  const Hdf5Handle opened(impl_->exists(object) ? H5Oopen(impl_->handle.id(), object.c_str(), H5P_DEFAULT) : -1,
                          H5Oclose);
  return opened.valid() && H5Aexists(opened.id(), name.c_str()) > 0;
}

int64_t Hdf5Reader::integer_attribute(const std::string& object, const std::string& name) const {
  const Hdf5Handle attribute = impl_->open_attribute(object, name);
  const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose);
  if (H5Tget_class(type.id()) != H5T_INTEGER) impl_->fail("attribute " + name, "an integer", type_name(type.id()));
  int64_t value = 0;
  if (H5Aread(attribute.id(), H5T_NATIVE_INT64, &value) < 0)
    impl_->fail("cannot read attribute " + name, "", hdf5_error());
  return value;
}

std::string Hdf5Reader::string_attribute(const std::string& object, const std::string& name) const {
  return impl_->attribute_text(impl_->open_attribute(object, name), name);
}

std::map<std::string, std::string> Hdf5Reader::string_attributes(const std::string& object) const {
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* names) -> herr_t {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  };
  std::vector<std::string> names;
  if (!impl_->exists(object)) return {};
  hsize_t position = 0;
  H5Aiterate_by_name(impl_->handle.id(), object.c_str(), H5_INDEX_NAME, H5_ITER_INC, &position, +add, &names,
                     H5P_DEFAULT);
  std::map<std::string, std::string> attributes;
  for (const std::string& name : names) {
    const Hdf5Handle attribute = impl_->open_attribute(object, name);
    const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose);
    if (H5Tget_class(type.id()) == H5T_STRING) attributes[name] = impl_->attribute_text(attribute, name);
  }
  return attributes;
}

bool has_hdf5_format(const std::filesystem::path& file, const std::string& format) {
  try {
    const Hdf5Reader input(file);
    return input.has_attribute("/", "format") && input.string_attribute("/", "format") == format;
  } catch (const UserError&) {
    return false;
  }
}

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
