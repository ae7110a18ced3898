#include "base/environment.h"

#include <algorithm>
#include <array>
#include <cstdlib>  // defines __GLIBC__
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>

#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/resource.h>
#include <torch/version.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/child_process.h"

namespace draftsmith {

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

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

bool switched_off(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "off";
}

std::string command_line() {
  std::ifstream arguments("/proc/self/cmdline");
  std::string text;
  for (std::string argument; std::getline(arguments, argument, '\0');) {
    text += text.empty() ? std::filesystem::path(argument).filename().string() : " " + shell_word(argument);
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

namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

}  // namespace

int64_t cpu_cores() {
  const size_t allowed = allowed_processors().size();
  return static_cast<int64_t>(allowed > 0 ? allowed : std::thread::hardware_concurrency());
}

double busy_seconds(const std::string& stat, const std::vector<int>& processors, double ticks) {
  std::istringstream lines(stat);
  double busy = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with("cpu") || name.size() == 3) continue;
    if (std::find(processors.begin(), processors.end(), std::atoi(name.c_str() + 3)) == processors.end()) continue;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' times are in user and nice.
    std::array<double, 8> times{};
    for (double& time : times) words >> time;
    busy += times[0] + times[1] + times[2] + times[5] + times[6] + times[7];
  }
  return busy / ticks;
}

std::optional<ProcessorTimes> processor_times() {
  std::ifstream file("/proc/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  rusage usage{}, children{};  // such as commands that score outputs
  timespec clock{};
  if (stat.empty() || getrusage(RUSAGE_SELF, &usage) != 0 || getrusage(RUSAGE_CHILDREN, &children) != 0 ||
      clock_gettime(CLOCK_MONOTONIC, &clock) != 0) {
    return {};
  }
  return ProcessorTimes{.wall = static_cast<double>(clock.tv_sec) + static_cast<double>(clock.tv_nsec) * 1e-9,
                        .busy = busy_seconds(stat, allowed_processors(), static_cast<double>(sysconf(_SC_CLK_TCK))),
                        .own = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime) + seconds_of(children.ru_utime) +
                               seconds_of(children.ru_stime)};
}

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargest = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargest);  // smaller blocks come from the heap, which the process keeps
  mallopt(M_TRIM_THRESHOLD, kLargest);
#endif
}

}  // namespace draftsmith
