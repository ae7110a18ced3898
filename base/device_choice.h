// The device that options and flags name.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace draftsmith {

// Returns the device named "auto", "cpu", "cuda" or "cuda:N". "auto" is the first CUDA device if its capability is 7.5
// or more and LibTorch's operators and own kernels run on it. Otherwise it is the CPU; a warning says why if there is a
// GPU. `where` names the option or flag in errors. Throws UserError for other words, and for a CUDA device that this
// machine or this LibTorch does not have.
c10::Device choose_device(const std::string& name, const std::string& where = "--device");

// Returns why "auto" does not take a GPU; nothing if it does. `capability` returns 90 for 9.0; `probe` runs work on the
// GPU. Both throw if that fails. Exposed for tests.
std::optional<std::string> reason_against_gpu(const std::function<int()>& capability,
                                              const std::function<void()>& probe);

}  // namespace draftsmith
