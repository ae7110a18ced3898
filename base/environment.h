// Machine and build of a measurement, for results.json and `draftsmith --version`.
#pragma once

#include <cstdint>
#include <string>

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

// Returns whether an environment variable turns something off, or on: its value is "off", or "on".
bool switched_off(const char* variable);
bool switched_on(const char* variable);

// Returns the command line of this process as a shell would read it, the program without its folder.
std::string command_line();

// Returns an object with version, commit, compiler, cpu, cores, date, command, libtorch and host memory in bytes.
nlohmann::ordered_json environment();

}  // namespace draftsmith
