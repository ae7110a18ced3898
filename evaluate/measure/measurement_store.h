// Finished measurements of an evaluation on disk, so that an interrupted evaluation continues after the last one.
//
// Each process of a job writes a file of its own in the directory of the results: measurements.jsonl, or
// measurements.RANK.jsonl for all but the leader. All processes read all files, also those of an earlier run with
// another number of processes. The first line of a file identifies the suite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "distributed/world.h"

namespace draftsmith::evaluate {

// Returns a name for a measurement, made of its parts: what is measured, a task, a setting, a line.
std::string measurement_name(const std::vector<std::string>& parts);

class MeasurementStore {
 public:
  // Reads the files in `directory` whose key equals `key`, which identifies models, build and what all measurements
  // depend on, and empties this process's own file otherwise. All processes make a store together, with the same key.
  // Errors: RunError if the file cannot be written; as World::gather().
  MeasurementStore(std::filesystem::path directory, const std::string& key, World& world);

  bool has(const std::string& name) const { return measured_.contains(name); }
  // Returns a finished measurement. Errors: std::logic_error if there is none.
  nlohmann::json at(const std::string& name) const;
  // Adds a measurement and writes it to this process's file at once. Errors: RunError if it cannot be written.
  void add(const std::string& name, const nlohmann::json& measurement);
  // Adds the failure of measurements that have one `owner`, in place of them. It holds until the evaluation ends: a
  // later one tries them again. Errors: as add().
  void add_failure(const std::string& owner, const std::string& message);
  // Returns the message of such a failure; nothing if the owner's measurements have not failed.
  std::optional<std::string> failure(const std::string& owner) const;
  // Reads what the other processes have written. They must have finished it (deal_out()).
  void read_others();
  // Returns the number of measurements that the constructor read.
  int64_t resumed() const { return resumed_; }
  // Removes the files of all processes after a complete evaluation.
  void remove();

 private:
  std::filesystem::path file_of(int64_t rank) const;
  void read(const std::filesystem::path& file);
  void open_own();
  [[noreturn]] void refuse(const std::string& what) const;

  std::filesystem::path directory_;
  std::string header_;
  World& world_;
  std::ofstream stream_;
  std::map<std::string, std::string> measured_;              // JSON by name
  std::map<std::filesystem::path, uintmax_t> bytes_read_{};  // whole lines of each file
  int64_t resumed_ = 0;
};

}  // namespace draftsmith::evaluate
