#include "base/environment.h"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <torch/version.h>
#include <unistd.h>

#include "base/build_info.h"

namespace draftsmith {

std::string version() {
  return build_info::kVersion;
}

std::string git_commit() {
  return build_info::kCommit;
}

std::string compiler() {
  return build_info::kCompiler;
}

std::string libtorch_version() {
  return TORCH_VERSION;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown CPU";
}

int64_t cpu_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int64_t>(std::thread::hardware_concurrency());
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

namespace {

// Returns an argument as a shell reads it back.
std::string shell_quoted(const std::string& argument) {
  if (!argument.empty() && argument.find_first_of(" \t\n'\"\\$*?;&|<>()`#~") == std::string::npos) return argument;
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

bool switched_off(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "off";
}

bool switched_on(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "on";
}

std::string command_line() {
  std::ifstream arguments("/proc/self/cmdline");
  std::string text;
  for (std::string argument; std::getline(arguments, argument, '\0');) {
    text += text.empty() ? std::filesystem::path(argument).filename().string() : " " + shell_quoted(argument);
  }
  return text;
}

nlohmann::ordered_json environment() {
  const auto memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  nlohmann::ordered_json json;
  json["draftsmith"] = version();
  json["commit"] = git_commit();
  json["compiler"] = compiler();
  json["libtorch"] = libtorch_version();
  json["cpu"] = cpu_name();
  json["cores"] = cpu_cores();
  json["memory_bytes"] = memory;
  json["date"] = now_utc();
  json["command"] = command_line();
  return json;
}

}  // namespace draftsmith
