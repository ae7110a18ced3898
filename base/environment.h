// The machine and the process: machine and build of a measurement, use of processors, switches of the environment, and
// the memory allocator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace draftsmith {

std::string version();  // "0.1.0"
// Returns the short hash at configure time, followed by "+" if the tree had changes; "unknown" without git.
std::string git_commit();
std::string compiler();          // "g++ 12.2.0, Release"
std::string libtorch_version();  // "2.11.0"
std::string cpu_name();          // "Intel(R) Xeon(R) Processor"
int64_t cpu_cores();             // logical cores that this process may run on
std::string now_utc();           // "2026-11-21T11:40:03Z"

// Returns whether an environment variable turns something off: its value is "off".
bool switched_off(const char* variable);

// Returns the command line of this process as a shell would read it, the program without its folder.
std::string command_line();

// Returns an object with version, commit, compiler, cpu, cores, date, command, libtorch and host memory in bytes.
nlohmann::ordered_json environment();

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

// Makes the process keep the memory that it frees, for the next tensor. By default glibc returns large blocks to the
// kernel at once, which must then clear and map every page again: for tensors of the size of logits, that takes as long
// as computing with them. Peak memory is unchanged. Programs call this once, at their start. It has no effect with
// other C libraries or allocators.
void keep_freed_memory();

}  // namespace draftsmith
