// Owning handles for HDF5's C interface and its types. Only the .cpp files of data/hdf5 include this.
#pragma once

#include <string>
#include <utility>

#include <hdf5.h>

#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

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

// Stops HDF5 from printing its error stack, for the rest of the program: exceptions report all failures.
void silence_hdf5();

// Returns the innermost description on HDF5's error stack, or an empty text.
std::string hdf5_error();

// Returns the type of a dataset, little endian in the file and in memory.
Hdf5Handle hdf5_datatype(Hdf5Type type);

// Returns the bytes of one element.
size_t hdf5_size(Hdf5Type type);

// Returns the name for messages: int32, int64, float16 or float32.
std::string hdf5_name(Hdf5Type type);

}  // namespace draftsmith::data
