#include "evaluate/measure/energy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include <dlfcn.h>

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& file) {
  std::ifstream input(file);
  std::string line;
  return std::getline(input, line) ? std::optional(line) : std::nullopt;
}

std::optional<uint64_t> number_in(const fs::path& file) {
  const auto line = first_line(file);
  uint64_t number = 0;
  if (!line || std::from_chars(line->data(), line->data() + line->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

// Returns whether a folder is a zone of its own, intel-rapl:N; intel-rapl:N:M is a part of one.
bool is_zone(const std::string& folder) {
  const std::string prefix = "intel-rapl:";
  return folder.starts_with(prefix) && folder.size() > prefix.size() &&
         folder.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
}

// NVIDIA's library as far as it is needed here. Results are 0 or an error's number.
class Nvml {
 public:
  explicit Nvml(const std::string& library) : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    int (*init)() = nullptr;
    find("nvmlInit_v2", init);
    find("nvmlShutdown", shutdown_);
    find("nvmlDeviceGetHandleByPciBusId_v2", device_of_);
    find("nvmlDeviceGetName", name_of_);
    find("nvmlDeviceGetTotalEnergyConsumption", energy_of_);
    const bool whole = init && shutdown_ && device_of_ && name_of_ && energy_of_;
    ready_ = whole && init() == 0;
  }
  ~Nvml() {
    if (ready_) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns the device's handle; nullptr if it is not found.
  void* device(const std::string& pci_bus_id) const {
    void* device = nullptr;
    return ready_ && device_of_(pci_bus_id.c_str(), &device) == 0 ? device : nullptr;
  }
  std::string name(void* device) const {
    std::array<char, 96> name{};
    return name_of_(device, name.data(), static_cast<unsigned>(name.size() - 1)) == 0 ? name.data() : "";
  }
  // Returns millijoules.
  std::optional<uint64_t> energy(void* device) const {
    unsigned long long energy = 0;
    return energy_of_(device, &energy) == 0 ? std::optional<uint64_t>(energy) : std::nullopt;
  }

 private:
  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_;
  bool ready_ = false;
  int (*shutdown_)() = nullptr;
  int (*device_of_)(const char* bus_id, void** device) = nullptr;
  int (*name_of_)(void* device, char* name, unsigned length) = nullptr;
  int (*energy_of_)(void* device, unsigned long long* millijoules) = nullptr;
};

}  // namespace

std::vector<EnergyCounter> package_counters(const fs::path& powercap) {
  std::vector<EnergyCounter> counters;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(powercap, none)) {
    const fs::path zone = entry.path();
    const std::string name = first_line(zone / "name").value_or("");
    if (!is_zone(zone.filename().string()) || !name.starts_with("package")) continue;
    counters.push_back({.name = name,
                        .read = [file = zone / "energy_uj"] { return number_in(file); },
                        .range = number_in(zone / "max_energy_range_uj")});
    if (!counters.back().read()) return {};  // a sum without it would be too low
  }
  std::ranges::sort(counters, {}, &EnergyCounter::name);
  return counters;
}

std::optional<EnergyCounter> gpu_counter(const std::string& bus_id, const std::string& library) {
  if (bus_id.empty()) return std::nullopt;
  const auto nvml = std::make_shared<Nvml>(library);
  void* device = nvml->device(bus_id);
  if (device == nullptr || !nvml->energy(device)) return std::nullopt;
  return EnergyCounter{.name = "GPU " + nvml->name(device),
                       .read = [nvml, device] { return nvml->energy(device); },
                       .joules = 1e-3,
                       .range = std::nullopt};
}

std::string pci_bus_id(int cuda_device) {
  using Function = int (*)(char* bus_id, int length, int device);
  // LibTorch's CUDA half brings the library that has the function.
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "cudaDeviceGetPCIBusId"));
  std::array<char, 32> text{};
  if (function == nullptr || function(text.data(), static_cast<int>(text.size()), cuda_device) != 0) return "";
  return text.data();
}

std::vector<EnergyCounter> device_counters(std::optional<int> cuda_device, const fs::path& powercap) {
  std::vector<EnergyCounter> counters = package_counters(powercap);
  if (!cuda_device) return counters;
  auto gpu = gpu_counter(pci_bus_id(*cuda_device));
  if (!gpu) return {};  // the processors alone would say little of work on a GPU
  counters.push_back(std::move(*gpu));
  return counters;
}

EnergyMeter::EnergyMeter(std::vector<EnergyCounter> counters) {
  for (EnergyCounter& counter : counters) {
    counters_.push_back({std::move(counter), std::nullopt});
    counters_.back().last = counters_.back().counter.read();
  }
}

std::optional<double> EnergyMeter::take() {
  std::optional<double> joules = counters_.empty() ? std::nullopt : std::optional(0.0);
  for (Read& one : counters_) {
    const auto now = one.counter.read();
    const auto last = std::exchange(one.last, now);
    const bool again = now && last && *now < *last;  // the counter began again at 0
    if (!now || !last || (again && one.counter.range.value_or(0) < *last)) {
      joules.reset();
    } else if (joules) {
      const uint64_t units = again ? *one.counter.range - *last + *now : *now - *last;
      *joules += one.counter.joules * static_cast<double>(units);
    }
  }
  return joules;
}

std::string EnergyMeter::names() const {
  std::string names;
  for (const Read& one : counters_) names += (names.empty() ? "" : ", ") + one.counter.name;
  return names;
}

}  // namespace draftsmith::evaluate
