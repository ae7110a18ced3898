// Number type, threads and precision, as named by options and flags; what a device is and does.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace draftsmith {

// Returns the type named "fp32", "bf16", "fp16" or "fp64". Throws UserError for other words.
c10::ScalarType parse_dtype(const std::string& name, const std::string& where = "--dtype");
// Returns the same and, for "int8", the type of a byte: weights of int8, all other numbers of fp32.
c10::ScalarType parse_weight_type(const std::string& name, const std::string& where = "--dtype");
// Returns the name that these read.
std::string dtype_name(c10::ScalarType dtype);

// Sets the number of threads for LibTorch's work on the CPU, unless it is 0. Returns the number in use.
int64_t set_threads(int64_t threads);

// Sets how precise matrix products on GPUs are. "highest": fp32 as it is, sums of bf16 and fp16 products in fp32.
// "high": fp32 in TF32 (10 bits), sums of bf16 and fp16 in parts of their own type; both are faster. Throws UserError
// for other words.
void set_matmul_precision(const std::string& name, const std::string& where = "--matmul-precision");

// Waits until the device has done all its work, so that times are right. Returns at once for the CPU.
void synchronize(c10::Device device);

// Returns the device's product name, for example "NVIDIA H200".
std::string device_description(c10::Device device);

}  // namespace draftsmith
