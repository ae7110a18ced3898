#include "data/hdf5/hdf5.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include <hdf5.h>

#include "base/error.h"
#include "base/files.h"

namespace draftsmith::data {

namespace {

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

// IEEE binary16: HDF5 1.10 has no predefined type for it, so it is derived from binary32. Sign bit 15, exponent 5 bits
// from bit 10, mantissa 10 bits from bit 0.
hid_t float16_type() {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
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
  if (type == Hdf5Type::kFloat16) return Hdf5Handle(float16_type(), H5Tclose);
  const hid_t plain = type == Hdf5Type::kInt32   ? H5T_STD_I32LE
                      : type == Hdf5Type::kInt64 ? H5T_STD_I64LE
                                                 : H5T_IEEE_F32LE;
  return Hdf5Handle(H5Tcopy(plain), H5Tclose);
}

// Returns the bytes of one element.
size_t hdf5_size(Hdf5Type type) {
  return type == Hdf5Type::kFloat16 ? 2 : type == Hdf5Type::kInt64 ? 8 : 4;
}

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

std::vector<int64_t> Hdf5Reader::shape(const std::string& name, Hdf5Type type, int64_t rank) const {
  const Hdf5Handle dataset = impl_->open_dataset(name);
  const Hdf5Handle layout(H5Dget_create_plist(dataset.id()), H5Pclose);
  if (H5Pget_layout(layout.id()) == H5D_VIRTUAL || H5Pget_external_count(layout.id()) > 0) {
    impl_->fail("dataset " + name + " stores its data in other files", "data inside the file itself");
  }
  const Hdf5Handle stored(H5Dget_type(dataset.id()), H5Tclose);
  const std::string found = type_name(stored.id());
  const std::string wanted = type_name(hdf5_datatype(type).id());
  if (found != wanted) impl_->fail("dataset " + name + " has another type", wanted, found);
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
                "a contiguous, uncompressed dataset of aligned little-endian " + type_name(hdf5_datatype(type).id()),
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

std::string Hdf5Reader::format() const {
  const bool there = H5Aexists_by_name(impl_->handle.id(), "/", "format", H5P_DEFAULT) > 0;
  return there ? string_attribute("/", "format") : "";
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

namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 18;  // fits HDF5's default chunk cache several times over
constexpr unsigned kDeflateLevel = 1;

struct Dataset {
  std::string name;
  Hdf5Type type;
  int64_t columns = 0;
  int64_t chunk_values = 0;  // a whole number of rows
  int64_t rows = 0;          // in the file
  int64_t all_rows = -1;     // number of rows of a plain dataset; -1: the dataset grows
  std::vector<std::byte> buffer{};
  Hdf5Handle handle{};
};

int64_t rows_of_chunk(Hdf5Type type, int64_t columns) {
  const int64_t row_bytes = std::max<int64_t>(1, columns) * static_cast<int64_t>(hdf5_size(type));
  return std::max<int64_t>(1, kChunkBytes / row_bytes);
}

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
  std::vector<Dataset> datasets;

  [[noreturn]] void fail(const std::string& what) const {
    throw RunError({.where = file.final_path().string(),
                    .what = what,
                    .found = hdf5_error(),
                    .hint = "is there space and permission to write beside it?"});
  }

  void check(bool good, const std::string& what) const {
    if (!good) fail(what);
  }

  // Writes the whole chunks of the buffer; with `all`, also the last partial one.
  void flush(Dataset& dataset, bool all) const {
    const int64_t value_bytes = static_cast<int64_t>(hdf5_size(dataset.type));
    const int64_t held = static_cast<int64_t>(dataset.buffer.size()) / value_bytes;
    const int64_t values = all ? held : held / dataset.chunk_values * dataset.chunk_values;
    if (values == 0) return;
    const int64_t columns = std::max<int64_t>(1, dataset.columns);
    const int rank = dataset.columns == 0 ? 1 : 2;
    const std::array<hsize_t, 2> count = {static_cast<hsize_t>(values / columns), static_cast<hsize_t>(columns)};
    const std::array<hsize_t, 2> start = {static_cast<hsize_t>(dataset.rows), 0};
    const std::array<hsize_t, 2> extent = {start[0] + count[0], count[1]};
    if (dataset.all_rows < 0) {
      check(H5Dset_extent(dataset.handle.id(), extent.data()) >= 0, "cannot extend dataset " + dataset.name);
    } else if (dataset.rows + values / columns > dataset.all_rows) {
      throw std::logic_error("more rows appended to " + dataset.name + " than it was created with");
    }
    const Hdf5Handle memory(H5Screate_simple(rank, count.data(), nullptr), H5Sclose);
    const Hdf5Handle space(H5Dget_space(dataset.handle.id()), H5Sclose);
    const Hdf5Handle type = hdf5_datatype(dataset.type);
    H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
    check(H5Dwrite(dataset.handle.id(), type.id(), memory.id(), space.id(), H5P_DEFAULT, dataset.buffer.data()) >= 0,
          "cannot write dataset " + dataset.name);
    dataset.rows += values / columns;
    dataset.buffer.erase(dataset.buffer.begin(), dataset.buffer.begin() + values * value_bytes);
  }

  // Creates the dataset in the file. Returns its index.
  size_t add(Dataset dataset, const Hdf5Handle& space, const Hdf5Handle& layout) {
    make_groups(handle.id(), dataset.name);
    const Hdf5Handle stored = hdf5_datatype(dataset.type);
    dataset.handle = Hdf5Handle(
        H5Dcreate2(handle.id(), dataset.name.c_str(), stored.id(), space.id(), H5P_DEFAULT, layout.id(), H5P_DEFAULT),
        H5Dclose);
    check(dataset.handle.valid(), "cannot create dataset " + dataset.name);
    datasets.push_back(std::move(dataset));
    return datasets.size() - 1;
  }

  // Replaces an attribute of the name.
  void write_attribute(const std::string& object, const std::string& name, hid_t type, const void* value) const {
    make_groups(handle.id(), object + "/");
    const Hdf5Handle opened(H5Oopen(handle.id(), object.c_str(), H5P_DEFAULT), H5Oclose);
    check(opened.valid(), "cannot open " + object);
    if (H5Aexists(opened.id(), name.c_str()) > 0) H5Adelete(opened.id(), name.c_str());
    const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const Hdf5Handle attribute(H5Acreate2(opened.id(), name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                               H5Aclose);
    check(attribute.valid() && H5Awrite(attribute.id(), type, value) >= 0, "cannot write attribute " + name);
  }
};

Hdf5Writer::Hdf5Writer(const std::filesystem::path& file, int64_t alignment) : impl_(std::make_unique<Impl>(file)) {
  silence_hdf5();
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  H5Pset_alignment(access.id(), 1, static_cast<hsize_t>(alignment));
  impl_->handle = Hdf5Handle(
      H5Fcreate(impl_->file.temporary().c_str(), H5F_ACC_TRUNC, timeless(H5P_FILE_CREATE).id(), access.id()), H5Fclose);
  if (!impl_->handle.valid()) impl_->fail("cannot create the file");
}

Hdf5Writer::~Hdf5Writer() = default;

size_t Hdf5Writer::create(const std::string& name, Hdf5Type type, int64_t columns) {
  const int64_t chunk_rows = rows_of_chunk(type, columns);
  const int rank = columns == 0 ? 1 : 2;
  const std::array<hsize_t, 2> extent = {0, static_cast<hsize_t>(columns)};
  const std::array<hsize_t, 2> most = {H5S_UNLIMITED, static_cast<hsize_t>(columns)};
  const std::array<hsize_t, 2> chunk = {static_cast<hsize_t>(chunk_rows), static_cast<hsize_t>(columns)};
  const Hdf5Handle space(H5Screate_simple(rank, extent.data(), most.data()), H5Sclose);
  const Hdf5Handle layout = timeless(H5P_DATASET_CREATE);
  H5Pset_chunk(layout.id(), rank, chunk.data());
  H5Pset_shuffle(layout.id());
  H5Pset_deflate(layout.id(), kDeflateLevel);
  return impl_->add(
      {.name = name, .type = type, .columns = columns, .chunk_values = chunk_rows * std::max<int64_t>(1, columns)},
      space, layout);
}

size_t Hdf5Writer::create_plain(const std::string& name, Hdf5Type type, int64_t rows, int64_t columns) {
  const std::array<hsize_t, 2> extent = {static_cast<hsize_t>(rows), static_cast<hsize_t>(columns)};
  const Hdf5Handle space(H5Screate_simple(columns == 0 ? 1 : 2, extent.data(), nullptr), H5Sclose);
  const Hdf5Handle layout = timeless(H5P_DATASET_CREATE);
  H5Pset_layout(layout.id(), H5D_CONTIGUOUS);
  return impl_->add({.name = name,
                     .type = type,
                     .columns = columns,
                     .chunk_values = rows_of_chunk(type, columns) * std::max<int64_t>(1, columns),
                     .all_rows = rows},
                    space, layout);
}

void Hdf5Writer::append_bytes(size_t index, Hdf5Type type, const void* values, int64_t count) {
  Dataset& dataset = impl_->datasets.at(index);
  if (type != dataset.type || count % std::max<int64_t>(1, dataset.columns) != 0) {
    throw std::logic_error("append to " + dataset.name + " with another type or an incomplete row");
  }
  const auto* bytes = static_cast<const std::byte*>(values);
  dataset.buffer.insert(dataset.buffer.end(), bytes, bytes + static_cast<size_t>(count) * hdf5_size(type));
  if (static_cast<int64_t>(dataset.buffer.size()) >= 4 * kChunkBytes) impl_->flush(dataset, false);
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
  for (const auto& [key, value] : provenance) set_attribute("/provenance", key, value);
}

void Hdf5Writer::finish() {
  for (Dataset& dataset : impl_->datasets) {
    impl_->flush(dataset, true);
    if (dataset.all_rows >= 0 && dataset.rows != dataset.all_rows) {
      throw std::logic_error("fewer rows appended to " + dataset.name + " than it was created with");
    }
    impl_->check(dataset.handle.reset(), "cannot finish dataset " + dataset.name);
  }
  impl_->check(H5Fflush(impl_->handle.id(), H5F_SCOPE_GLOBAL) >= 0, "cannot write the file");
  impl_->check(impl_->handle.reset(), "cannot close the file");
  impl_->file.commit();
}

}  // namespace draftsmith::data
