#include "evaluate/measure/measurement_store.h"

#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/logging.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

// A line is {"name":"...","measured":...}. Quotes inside of the name are escaped, so the first kMeasured ends it.
constexpr std::string_view kName = R"({"name":)";
constexpr std::string_view kMeasured = R"(,"measured":)";

std::string line_of(const std::string& name, const std::string& measured) {
  return fmt::format("{}{}{}{}}}", kName, nlohmann::json(name).dump(), kMeasured, measured);
}

// Returns whether the file is one of a MeasurementStore.
bool holds_measurements(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("measurements.") && name.ends_with("jsonl");
}

std::string failure_name(const std::string& owner) {
  return measurement_name({"failure", owner});
}

std::vector<fs::path> measurement_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file() && holds_measurements(entry.path())) files.push_back(entry.path());
  }
  return files;
}

}  // namespace

std::string measurement_name(const std::vector<std::string>& parts) {
  return nlohmann::json(parts).dump();
}

MeasurementStore::MeasurementStore(fs::path directory, const std::string& key, World& world)
    : directory_(std::move(directory)), header_(nlohmann::json{{"key", key}}.dump()), world_(world) {
  for (const fs::path& file : measurement_files(directory_)) read(file);
  const std::string failures = failure_name("").substr(0, failure_name("").size() - 3);  // without quotes and bracket
  std::erase_if(measured_, [&](const auto& one) { return one.first.starts_with(failures); });
  resumed_ = std::ssize(measured_);
  world_.wait_for_all("reading finished measurements");
  open_own();
}

fs::path MeasurementStore::file_of(int64_t rank) const {
  return directory_ / (rank == 0 ? "measurements.jsonl" : fmt::format("measurements.{}.jsonl", rank));
}

void MeasurementStore::read(const fs::path& file) {
  std::ifstream input(file);
  uintmax_t& done = bytes_read_[file];
  input.seekg(static_cast<std::streamoff>(done));
  std::string line;
  while (std::getline(input, line) && !input.eof()) {  // the last line of a killed evaluation may be cut off
    if (done == 0) {
      if (line != header_) return;
    } else {
      const size_t end = line.find(kMeasured);
      if (end == std::string::npos || !line.starts_with(kName) || !nlohmann::json::accept(line)) {
        log_warning("{}: a damaged measurement and what follows it is measured again", file.string());
        return;
      }
      const size_t begin = end + kMeasured.size();
      const auto name = nlohmann::json::parse(line.substr(kName.size(), end - kName.size())).get<std::string>();
      measured_[name] = line.substr(begin, line.size() - 1 - begin);
    }
    done += line.size() + 1;
  }
}

void MeasurementStore::open_own() {
  const fs::path file = file_of(world_.rank());
  const uintmax_t whole = bytes_read_[file];
  std::error_code failed;
  if (whole > 0) fs::resize_file(file, whole, failed);
  stream_.open(file, whole > 0 ? std::ios::app : std::ios::trunc);
  if (whole == 0) stream_ << header_ << "\n" << std::flush;
  if (!stream_ || failed) refuse("the file of measurements cannot be written");
}

void MeasurementStore::refuse(const std::string& what) const {
  throw RunError({.where = file_of(world_.rank()).string(), .what = what, .hint = "is the disk full?"});
}

nlohmann::json MeasurementStore::at(const std::string& name) const {
  const auto found = measured_.find(name);
  if (found == measured_.end()) throw std::logic_error("not measured: " + name);
  return nlohmann::json::parse(found->second);
}

void MeasurementStore::add(const std::string& name, const nlohmann::json& measurement) {
  std::string text = measurement.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  stream_ << line_of(name, text) << "\n" << std::flush;
  if (!stream_) refuse("a measurement could not be written");
  measured_[name] = std::move(text);
}

void MeasurementStore::add_failure(const std::string& owner, const std::string& message) {
  add(failure_name(owner), message);
}

std::optional<std::string> MeasurementStore::failure(const std::string& owner) const {
  const std::string name = failure_name(owner);
  return has(name) ? std::optional(at(name).get<std::string>()) : std::nullopt;
}

void MeasurementStore::read_others() {
  for (int64_t rank = 0; rank < world_.size(); ++rank) {
    if (rank != world_.rank()) read(file_of(rank));
  }
}

void MeasurementStore::remove() {
  stream_.close();
  std::error_code ignored;
  for (const fs::path& file : measurement_files(directory_)) fs::remove(file, ignored);
}

}  // namespace draftsmith::evaluate
