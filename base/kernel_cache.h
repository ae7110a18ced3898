// Compiled kernels on disk, so that a machine compiles each source once for an architecture.
//
// A file holds a line of magic, its key, the hash of what follows, and the cubin. One that is damaged or belongs to
// another key counts as absent, and is replaced.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/kernel_texts.h"

namespace draftsmith {

// Returns the folder that the environment variable DRAFTSMITH_KERNEL_CACHE names. Without it: draftsmith/kernels in
// XDG_CACHE_HOME or in ~/.cache. Empty, which keeps nothing, if none of them is set.
std::filesystem::path kernel_cache_folder();

// Returns the hash of all that a cubin depends on: texts, options, architecture ("sm_90") and NVRTC's version.
std::string kernel_key(const KernelSource& source, const std::string& architecture, const std::string& compiler);

class KernelCache {
 public:
  // An empty folder keeps nothing.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Returns the cubin that was stored under the key; nothing if there is none. A damaged file gives a warning.
  std::optional<std::string> find(const std::string& key) const;

  // Stores a cubin, and makes the folder if needed. The first failure gives a warning.
  void store(const std::string& key, std::string_view cubin);

  // Returns where find() and store() expect the key's file.
  std::filesystem::path file_of(const std::string& key) const;

 private:
  std::filesystem::path folder_;
  std::atomic<bool> warned_ = false;
};

}  // namespace draftsmith
