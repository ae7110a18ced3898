// Finished measurements of an evaluation on disk, so that an interrupted evaluation continues after the last one.
// They are lines of measurements.jsonl in the directory of the results, whose first line identifies the suite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// Hint in the message of an evaluation that was stopped.
inline constexpr const char* kHowToGoOn = "finished measurements are kept; run the evaluation again to go on";

// Circumstances of an evaluation, which do not change its results.
struct SuiteContext {
  bool quiet = false;  // shows neither progress nor table
};

// Returns a name for a measurement, made of its parts: what is measured, a task, a setting, a line.
std::string measurement_name(const std::vector<std::string>& parts);

class MeasurementStore {
 public:
  // Reads the file in `directory` if its key equals `key`, which identifies models, build and what all measurements
  // depend on, and empties it otherwise. Errors: RunError if the file cannot be written.
  MeasurementStore(const std::filesystem::path& directory, const std::string& key);

  bool has(const std::string& name) const { return measured_.contains(name); }
  // Returns a finished measurement. Errors: std::logic_error if there is none.
  nlohmann::json at(const std::string& name) const;
  // Adds a measurement and writes it to the file at once. Errors: RunError if it cannot be written.
  void add(const std::string& name, const nlohmann::json& measurement);
  // Adds the failure of measurements that have one `owner`, in place of them. It holds until the evaluation ends: a
  // later one tries them again. Errors: as add().
  void add_failure(const std::string& owner, const std::string& message);
  // Returns the message of such a failure; nothing if the owner's measurements have not failed.
  std::optional<std::string> failure(const std::string& owner) const;
  // Returns the number of measurements that the constructor read.
  int64_t resumed() const { return resumed_; }
  // Removes the file after a complete evaluation.
  void remove();

 private:
  // Reads the finished measurements, and returns the bytes of whole lines.
  uintmax_t read();
  [[noreturn]] void refuse(const std::string& what) const;

  std::filesystem::path file_;
  std::string header_;
  std::ofstream stream_;
  std::map<std::string, std::string> measured_;  // JSON by name
  int64_t resumed_ = 0;
};

// One of the measurements that are not timed: counts, qualities and outputs.
struct Measurement {
  std::string name;  // measurement_name()
  int64_t size = 1;  // in the unit of the progress
  std::function<nlohmann::json()> measure;
  // What fails with an exception of `measure` (MeasurementStore::failure()), such as a setting: its other measurements
  // are left out, and the evaluation goes on. Empty: the exception ends it.
  std::string owner = {};
};

// Makes the measurements that the store lacks, in this order: each may read the ones before it from the store. Then the
// store has all, or their owners' failures. `title` and `unit` are the progress's; without a title none is shown.
// Errors: those of `measure` without an owner, Interrupted.
void measure_missing(const std::vector<Measurement>& measurements, MeasurementStore& store, const SuiteContext& context,
                     const std::string& title = "", const std::string& unit = "");

}  // namespace draftsmith::evaluate
