// Rates of the machine that a model's speed is compared with: reading and copying of memory, matrix products. They
// change with the machine's other work, so they are measured in the same run, in turns with the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/aten.h"

namespace draftsmith::infer {

class MachineRate {
 public:
  virtual ~MachineRate() = default;
  // Does the work once. Returns bytes or operations a second.
  virtual double measure() = 0;
  // Returns what is done, for example "reading 256 MB in huge pages".
  virtual std::string description() const = 0;
};

// Returns the rate at which all threads together read the CPU's memory, each a part of `bytes` that it does not find in
// a cache. The memory lies in huge pages, as weights do.
std::unique_ptr<MachineRate> read_rate(int64_t bytes);
// Returns the size of memory that no cache of this machine holds: a multiple of the third level and at least 256 MiB.
int64_t uncached_bytes();

// Returns the rate of copies of so many bytes on a device: bytes read and bytes written, both.
std::unique_ptr<MachineRate> copy_rate(at::Device device, int64_t bytes);

// Returns the rate of LibTorch's product of two square matrices [size,size] of a floating-point type.
std::unique_ptr<MachineRate> product_rate(at::Device device, at::ScalarType type, int64_t size);

}  // namespace draftsmith::infer
