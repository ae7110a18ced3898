#include "distributed/launch.h"

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith {

namespace {

constexpr int64_t kMostPort = 65535;
constexpr int64_t kMostProcesses = 1 << 16;

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Reads variables and collects what is wrong with them.
class Variables {
 public:
  // Returns a number in the range; `otherwise` stands for a variable that is not set, if it may be absent.
  int64_t number(const std::string& name, int64_t least, int64_t most, std::optional<int64_t> otherwise = {}) {
    const auto text = variable(name);
    if (!text) {
      if (!otherwise) missing(name, "a number");
      return otherwise.value_or(least);
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error == std::errc() && end == text->data() + text->size() && value >= least && value <= most) return value;
    problems_.add({.where = name,
                   .what = "a variable that tells a process its place among several is not usable",
                   .expected = fmt::format("a number from {} to {}", least, most),
                   .found = text->empty() ? "nothing" : *text});
    return least;
  }

  std::string text(const std::string& name, const std::string& what) {
    if (const auto value = variable(name); value && !value->empty()) return *value;
    missing(name, what);
    return "";
  }

  std::string text_or(const std::string& name, const std::string& otherwise) const {
    return variable(name).value_or(otherwise);
  }

  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  void missing(const std::string& name, const std::string& expected) {
    problems_.add({.where = name,
                   .what = "a variable that tells a process its place among several is not set",
                   .expected = expected,
                   .found = "RANK or WORLD_SIZE",
                   .hint = "start with torchrun; or unset the others to run one process"});
  }

  Problems problems_;
};

}  // namespace

std::optional<Launch> find_launch() {
  if (!variable("RANK") && !variable("WORLD_SIZE")) return std::nullopt;
  Variables variables;
  Launch launch;
  launch.size = variables.number("WORLD_SIZE", 1, kMostProcesses);
  launch.rank = variables.number("RANK", 0, launch.size - 1);
  // Whoever sets the variables by hand mostly starts all processes on one machine.
  launch.local_size = variables.number("LOCAL_WORLD_SIZE", 1, launch.size, launch.size);
  launch.local_rank = variables.number("LOCAL_RANK", 0, launch.local_size - 1, launch.rank % launch.local_size);
  if (launch.size > 1) {
    launch.host = variables.text("MASTER_ADDR", "the host of process 0");
    launch.port = variables.number("MASTER_PORT", 1, kMostPort);
  }
  launch.store_exists = variables.text_or("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  launch.attempt = fmt::format("{}/{}", variables.text_or("TORCHELASTIC_RUN_ID", ""),
                               variables.text_or("TORCHELASTIC_RESTART_COUNT", "0"));
  variables.throw_if_any();
  return launch.size == 1 ? std::nullopt : std::optional(launch);
}

}  // namespace draftsmith
