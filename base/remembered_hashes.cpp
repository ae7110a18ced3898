#include "base/remembered_hashes.h"

#include <chrono>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/sha256.h"

namespace draftsmith {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHexDigits = 64;
constexpr int64_t kMostBytes = 64'000'000;  // of a file of hashes

}  // namespace

std::string RememberedHashes::of(const fs::path& file) {
  std::error_code error;
  const fs::path path = fs::canonical(file, error);
  if (error) return sha256_file(file);  // says what is wrong
  const fs::file_time_type changed = fs::last_write_time(path);
  const Known now{fs::file_size(path), changed.time_since_epoch().count()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(path.string());
    if (found != known_.end() && found->second.size == now.size && found->second.changed == now.changed) {
      return found->second.sha256;
    }
  }
  const bool settled = fs::file_time_type::clock::now() - changed > std::chrono::seconds(2);
  std::string hash = sha256_file(path);
  if (!settled) return hash;
  const std::lock_guard lock(mutex_);
  known_[path.string()] = {now.size, now.changed, hash};
  news_ = true;
  return hash;
}

void RememberedHashes::load(const fs::path& file) {
  if (!fs::exists(file)) return;
  std::map<std::string, Known> stored;
  try {
    const nlohmann::json all = load_json(file, {.max_bytes = kMostBytes});
    for (const auto& [path, entry] : all.items()) {
      Known known{entry.at("size").get<uint64_t>(), entry.at("changed").get<int64_t>(),
                  entry.at("sha256").get<std::string>()};
      if (known.sha256.size() == kHexDigits) stored[path] = std::move(known);
    }
  } catch (const UserError&) {
    return;  // files are read again
  } catch (const nlohmann::json::exception&) {
    return;
  }
  const std::lock_guard lock(mutex_);
  known_.merge(stored);
}

void RememberedHashes::save(const fs::path& file) {
  const std::lock_guard lock(mutex_);
  if (!news_) return;
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [path, known] : known_) {
    all[path] = {{"size", known.size}, {"changed", known.changed}, {"sha256", known.sha256}};
  }
  write_file_atomic(file, all.dump(1) + "\n");
  news_ = false;
}

}  // namespace draftsmith
