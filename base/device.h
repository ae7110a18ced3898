// Choice of device, number type and threads, from the words of options and flags.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace draftsmith {

// "auto" (the first CUDA device if there is one, else the CPU), "cpu", "cuda" or "cuda:N". Throws UserError for other
// words and for CUDA devices that this machine or this LibTorch does not have. `where` names the option or flag.
c10::Device choose_device(const std::string& name, const std::string& where = "--device");

// "fp32", "bf16", "fp16" or "fp64". Throws UserError for other words.
c10::ScalarType parse_dtype(const std::string& name, const std::string& where = "--dtype");
std::string dtype_name(c10::ScalarType dtype);

// Sets the number of threads for LibTorch's CPU work; 0 leaves LibTorch's choice. Returns the number in use.
int64_t set_threads(int64_t threads);

// Waits until everything enqueued on the device is done (for timing); nothing to wait for on the CPU.
void synchronize(c10::Device device);

// "Intel(R) Xeon(R) Processor" or "NVIDIA H200".
std::string device_description(c10::Device device);

}  // namespace draftsmith
