#include "base/kernel_cache.h"

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/sha256.h"

namespace draftsmith {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestFile = uint64_t{1} << 30;

fs::path folder_of_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

// Returns what stands before the cubin in its file.
std::string head_of(const std::string& key, std::string_view cubin) {
  return "draftsmith kernels 1\nkey " + key + "\nsha256 " + sha256(cubin) + "\n";
}

}  // namespace

fs::path kernel_cache_folder() {
  if (fs::path own = folder_of_variable("DRAFTSMITH_KERNEL_CACHE"); !own.empty()) return own;
  // The standard of these folders ignores relative paths.
  if (const fs::path cache = folder_of_variable("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "draftsmith" / "kernels";
  }
  if (const fs::path home = folder_of_variable("HOME"); !home.empty()) {
    return home / ".cache" / "draftsmith" / "kernels";
  }
  return {};
}

std::string kernel_key(const KernelSource& source, const std::string& architecture, const std::string& compiler) {
  Sha256 hash;
  const auto add = [&](std::string_view text) {
    hash.update(std::to_string(text.size()) + ":");
    hash.update(text);
  };
  add(architecture);
  add(compiler);
  add(source.main.name);
  add(source.main.text);
  for (const KernelText& header : source.headers) {
    add(header.name);
    add(header.text);
  }
  for (const std::string& option : source.options) add(option);
  return hash.hex_digest();
}

fs::path KernelCache::file_of(const std::string& key) const {
  return folder_ / (key + ".kernels");
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  std::error_code error;
  const fs::path file = file_of(key);
  if (folder_.empty() || !fs::exists(file, error)) return std::nullopt;
  try {
    std::string content = read_file(file, kLargestFile);
    const size_t size_of_head = head_of(key, "").size();
    if (content.size() > size_of_head) {
      std::string cubin = content.substr(size_of_head);
      if (content.starts_with(head_of(key, cubin))) return cubin;
    }
    log_warning("{}: the file of kernels is damaged; they are compiled again", file.string());
  } catch (const Error& problem) {
    log_warning("kernels are compiled again: {}", problem.what());
  }
  return std::nullopt;
}

void KernelCache::store(const std::string& key, std::string_view cubin) {
  if (folder_.empty()) return;
  try {
    make_directories(folder_);
    AtomicFile file(file_of(key));
    file.write(head_of(key, cubin));
    file.write(cubin);
    file.commit();
  } catch (const Error& problem) {
    if (warned_.exchange(true)) return;
    log_warning(
        "compiled kernels cannot be kept, so that every start compiles them: {}\n"
        "  hint: name a folder that can be written in DRAFTSMITH_KERNEL_CACHE",
        problem.what());
  }
}

}  // namespace draftsmith
