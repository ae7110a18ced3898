// HDF5's C handles as values that close themselves, and what else its C interface needs.
// For the .cpp files behind data/hdf5/hdf5.h only.
#pragma once

#include <string>
#include <utility>

#include <hdf5.h>

#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

// An HDF5 identifier and the function that closes it. Invalid (negative) identifiers are never closed.
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
  // Closes now; false when closing failed (a flush to a full disk, for example).
  bool reset() {
    const hid_t id = std::exchange(id_, -1);
    return id < 0 || close_(id) >= 0;
  }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

// Keeps HDF5 from printing its error stack: every failure is reported by an exception instead. Stays so for the
// program.
void silence_hdf5();

// The innermost description on HDF5's error stack, or empty.
std::string hdf5_error();

// Type of a dataset in the file (little endian) and in memory, which are the same bytes on the machines we support.
Hdf5Handle hdf5_datatype(Hdf5Type type);

// Bytes of one element.
size_t hdf5_size(Hdf5Type type);

// Name for messages: int32, int64, float16, float32.
std::string hdf5_name(Hdf5Type type);

}  // namespace draftsmith::data
