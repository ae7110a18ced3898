// The frame of a bench: its flags, its device and its records. Devices are the program's, and the stand-in of tests for
// a GPU where a bench links it.
#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "base/device.h"
#include "bench/support/benches.h"
#ifdef DRAFTSMITH_STANDIN
#include "tests/standin/standin.h"
#endif

namespace draftsmith::bench {

// A program with the flags that all benches have; `app` takes its own ones.
class Program {
 public:
  explicit Program(const std::string& what) : app(what) {
    app.add_option("--device", device_, "auto, cpu, cuda, cuda:N or standin");
    app.add_option("--threads", threads_, "CPU threads; 0: LibTorch's choice");
    app.add_option("--json", json_, "also write the records here");
  }

  // Reads the flags and does the work, which returns whether all is well. Returns the exit status.
  int run(int argc, char** argv, const std::function<bool(at::Device, Records&)>& work) {
    CLI11_PARSE(app, argc, argv);
    try {
      use_exact_products();
      set_threads(threads_);
      const at::Device device = chosen_device();
      const bool real = device.is_cpu() || device.is_cuda();
      Records records(json_, {{"device", real ? device_description(device) : "standin"}});
      return work(device, records) ? 0 : 1;
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      return 1;
    }
  }

  CLI::App app;

 private:
  at::Device chosen_device() const {
#ifdef DRAFTSMITH_STANDIN
    if (device_ == "standin") return standin::device();
#endif
    return choose_device(device_);
  }

  std::string device_ = "auto";
  int64_t threads_ = 0;
  std::string json_;
};

}  // namespace draftsmith::bench
