#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>

#include "base/error.h"
#include "base/files.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

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

  // Opens the object of an attribute and removes an existing attribute of the name, so that a second call replaces it.
  Hdf5Handle open_for_attribute(const std::string& object, const std::string& name) const {
    make_groups(handle.id(), object + "/");
    Hdf5Handle opened(H5Oopen(handle.id(), object.c_str(), H5P_DEFAULT), H5Oclose);
    check(opened.valid(), "cannot open " + object);
    if (H5Aexists(opened.id(), name.c_str()) > 0) H5Adelete(opened.id(), name.c_str());
    return opened;
  }

  void write_attribute(const std::string& object, const std::string& name, hid_t type, const void* value) const {
    const Hdf5Handle opened = open_for_attribute(object, name);
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

void Hdf5Writer::write_array_bytes(const std::string& name, Hdf5Type type, const void* values, int64_t count) {
  const auto extent = static_cast<hsize_t>(count);
  make_groups(impl_->handle.id(), name);
  const Hdf5Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose);
  const Hdf5Handle layout = timeless(H5P_DATASET_CREATE);
  H5Pset_layout(layout.id(), H5D_CONTIGUOUS);
  const Hdf5Handle stored = hdf5_datatype(type);
  Hdf5Handle dataset(
      H5Dcreate2(impl_->handle.id(), name.c_str(), stored.id(), space.id(), H5P_DEFAULT, layout.id(), H5P_DEFAULT),
      H5Dclose);
  impl_->check(dataset.valid(), "cannot create dataset " + name);
  impl_->check(count == 0 || H5Dwrite(dataset.id(), stored.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0,
               "cannot write dataset " + name);
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
