// Energy that the machine uses meanwhile, from counters that the system lets this user read: RAPL of the processors
// (Intel's and AMD's, by Linux' powercap), NVML of an NVIDIA GPU. They count all that runs there, not one process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace draftsmith::evaluate {

inline constexpr const char* kPowercap = "/sys/class/powercap";

// Counter of energy that begins again at 0 after `range`.
struct EnergyCounter {
  std::string name;  // "package-0", "GPU NVIDIA H100"
  std::function<std::optional<uint64_t>()> read;
  double joules = 1e-6;           // of a unit
  std::optional<uint64_t> range;  // units; absent: unknown
};

// Returns the counters of the processors' packages below the folder `powercap`: its zones intel-rapl:N, without their
// parts, since a package counts these. Empty if there is none, or if one of several cannot be read.
std::vector<EnergyCounter> package_counters(const std::filesystem::path& powercap = kPowercap);

// Returns the counter of the GPU with that PCI bus id; nothing where NVML or the GPU has none.
std::optional<EnergyCounter> gpu_counter(const std::string& pci_bus_id,
                                         const std::string& library = "libnvidia-ml.so.1");

// Returns the PCI bus id of a CUDA device of this process; empty if it is unknown.
std::string pci_bus_id(int cuda_device);

// Meter of several counters together.
class EnergyMeter {
 public:
  explicit EnergyMeter(std::vector<EnergyCounter> counters);
  // Returns the joules since the last call, or since construction; nothing if there is no counter, or if one cannot be
  // read. A counter may have begun again once in between.
  std::optional<double> take();
  // Returns the counters' names: "package-0, package-1"; empty if there is none.
  std::string names() const;

 private:
  struct Read {
    EnergyCounter counter;
    std::optional<uint64_t> last;
  };
  std::vector<Read> counters_;
};

// Returns the counters of a device: of a GPU its own, with those of the packages where they can be read; of the CPU
// (absent `cuda_device`) those of the packages.
std::vector<EnergyCounter> device_counters(std::optional<int> cuda_device, const std::filesystem::path& powercap);

}  // namespace draftsmith::evaluate
