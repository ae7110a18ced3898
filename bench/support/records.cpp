#include "bench/support/records.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/json.h"

namespace draftsmith::bench {

Records::Records(std::filesystem::path file, nlohmann::ordered_json common)
    : file_(std::move(file)), common_(std::move(common)) {}

void Records::add(const std::string& measure, const nlohmann::ordered_json& values) {
  nlohmann::ordered_json record{{"measure", measure}};
  record.update(common_);
  record.update(values);
  const DeviceExecution now = device_execution();
  DeviceExecution since = now;
  since.kernel_launches -= before_.kernel_launches;
  since.replays -= before_.replays;
  record.update(execution_json(since));
  before_ = now;
  fmt::print("{}\n", record.dump());
  std::fflush(stdout);
  all_.push_back(std::move(record));
  if (!file_.empty()) write_json(file_, {{"environment", environment()}, {"records", all_}});
}

}  // namespace draftsmith::bench
