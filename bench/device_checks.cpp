// Checks of decoding on a device, random weights made there, to be passed before anything is timed: tools/gpu runs it.
//
//   build/release/bench/bench_device_checks --checks smoke,shapes --device cuda --dtypes fp32,bf16 --json FILE
//
// smoke: own kernels run, steps are recorded, and neither changes tiny models' numbers. shapes: numbers and lossless
// methods at real sizes. Prints a JSON record a check. Ends with 1 if any fails.
#include "bench/support/device_checks.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "bench/support/bench_device.h"
#include "bench/support/records.h"
#include "bench/support/shapes.h"

namespace {

using namespace draftsmith;

struct Flags {
  std::string checks = "smoke";
  std::string device = "auto";
  std::string dtypes = "fp32,bf16";
  std::string shapes;
  bool require_kernels = false;
  int64_t threads = 0;
  std::string json;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--checks", flags.checks, "smoke, shapes or both");
  app.add_option("--device", flags.device, "auto, cpu, cuda, cuda:N or standin");
  app.add_option("--dtypes", flags.dtypes, "fp32,bf16,...");
  app.add_option("--shapes", flags.shapes, "empty: tiny-t5,tiny-llama for smoke, t5-large,llama-1b for shapes");
  app.add_flag("--require-kernels", flags.require_kernels, "fail where no own kernel runs, as CUDA devices do");
  app.add_option("--threads", flags.threads, "CPU threads; 0: LibTorch's choice");
  app.add_option("--json", flags.json, "also write the records here");
}

nlohmann::ordered_json record_of(const bench::CheckResult& result) {
  nlohmann::ordered_json record{{"check", result.name},  {"shape", result.shape}, {"dtype", result.dtype},
                                {"value", result.value}, {"bound", result.bound}, {"passed", result.passed}};
  if (!result.note.empty()) record["note"] = result.note;
  if (!result.problem.empty()) record["problem"] = result.problem;
  return record;
}

// Returns whether all checks passed.
bool check(const Flags& flags) {
  const at::Device device = bench::prepare_device(flags.device, flags.threads);
  bench::Records records(flags.json, {{"device", bench::device_label(device)}});
  bool passed = true;
  const bench::OnCheck report = [&](const bench::CheckResult& result) {
    records.add("check", record_of(result));
    passed = passed && result.passed;
  };
  for (const std::string& name : bench::split_list(flags.checks)) {
    const bool smoke = name == "smoke";
    if (!smoke && name != "shapes") {
      throw UserError({"--checks", "unknown checks", "smoke or shapes", "'" + name + "'", ""});
    }
    const char* defaults = smoke ? "tiny-t5,tiny-llama" : "t5-large,llama-1b";
    for (const std::string& shape : bench::split_list(flags.shapes.empty() ? defaults : flags.shapes)) {
      for (const std::string& dtype : bench::split_list(flags.dtypes)) {
        const bench::CheckSettings settings{shape, device, parse_dtype(dtype, "--dtypes"),
                                            flags.require_kernels || device.is_cuda()};
        (smoke ? bench::check_ways : bench::check_numbers)(settings, report);
      }
    }
  }
  return passed;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Checks of decoding on a device, random weights");
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    return check(flags) ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
