// Use of the processors by other work than this process'.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace draftsmith {

// Times of the processors that this process may run on, up to now.
struct ProcessorTimes {
  double wall = 0;  // seconds
  double busy = 0;  // seconds of all these processors together, the host's theft included
  double own = 0;   // seconds of this process' threads
};

// Reads the times; nothing where the system does not tell them (/proc/stat).
std::optional<ProcessorTimes> processor_times();

// Returns the seconds that the given processors were busy for, from the text of /proc/stat with `ticks` a second.
double busy_seconds(const std::string& stat, const std::vector<int>& processors, double ticks);

}  // namespace draftsmith
