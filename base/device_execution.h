// How work on devices other than the CPU is done: which fast ways are wanted, which ones ran, and why others did not.
//
// Decoding on a GPU uses own kernels and recorded steps. Where one cannot be used, LibTorch's operators give the same
// numbers more slowly. DRAFTSMITH_STRICT_DEVICE=1 turns each such fallback into an error, so that no test or bench
// measures another way than it names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace draftsmith {

// Counts of the process and reasons of fallbacks. Recorded launches of kernels count once, when they are recorded.
struct DeviceExecution {
  int64_t kernel_launches = 0;         // of own kernels
  int64_t recordings = 0;              // of device work (base/device_graph.h)
  int64_t nodes = 0;                   // of the latest recording: launches of kernels, and copies
  int64_t replays = 0;                 // of recordings
  std::vector<std::string> fallbacks;  // each once, in their order
};

// Returns what has run so far. Thread-safe, like all functions here.
DeviceExecution device_execution();

// Returns {"own_kernels": bool, "recorded": bool, "warnings": [text]}, for records of measurements.
nlohmann::ordered_json execution_json(const DeviceExecution& execution);

void count_kernel_launch();
void count_recording(int64_t nodes);
void count_replay();

// Reports that `what` is done in a slower way because of `reason`. Writes a warning, once for each text. Throws
// RunError instead if DRAFTSMITH_STRICT_DEVICE=1.
void report_fallback(const std::string& what, const std::string& reason);

// Return whether own kernels and recordings are wanted: yes, unless DRAFTSMITH_KERNELS=off, DRAFTSMITH_GRAPHS=off, or
// the last call of the functions below says otherwise.
bool wants_own_kernels();
bool wants_recordings();

// Turn them on or off for the process. Models that have decoded keep their recordings: make new ones.
void want_own_kernels(bool on);
void want_recordings(bool on);

}  // namespace draftsmith
