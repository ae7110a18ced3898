#include "base/processor_use.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace draftsmith {

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
  rusage usage{};
  timespec clock{};
  if (stat.empty() || getrusage(RUSAGE_SELF, &usage) != 0 || clock_gettime(CLOCK_MONOTONIC, &clock) != 0) return {};
  return ProcessorTimes{.wall = static_cast<double>(clock.tv_sec) + static_cast<double>(clock.tv_nsec) * 1e-9,
                        .busy = busy_seconds(stat, allowed_processors(), static_cast<double>(sysconf(_SC_CLK_TCK))),
                        .own = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime)};
}

}  // namespace draftsmith
