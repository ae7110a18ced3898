// Measured numbers of a bench: printed at once, and kept in a JSON file that is complete after each of them.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "base/device_kernels.h"

namespace draftsmith::bench {

class Records {
 public:
  // `file`: rewritten after each record; empty: none. `common`: keys that every record begins with.
  Records(std::filesystem::path file, nlohmann::ordered_json common);

  // Adds a record {"measure": measure, ...common, ...values}, prints it as one line, and rewrites the file. It ends
  // with what ran since the last one (execution_json()); its warnings are those of the process so far.
  void add(const std::string& measure, const nlohmann::ordered_json& values);

 private:
  std::filesystem::path file_;
  nlohmann::ordered_json common_;
  nlohmann::ordered_json all_ = nlohmann::ordered_json::array();
  DeviceExecution before_ = device_execution();  // at the last record
};

}  // namespace draftsmith::bench
