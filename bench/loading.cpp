// Time and memory of loading a model directory for decoding, beside the time to read its file into memory.
//
//   build/release/bench/bench_loading [--dtype fp32|bf16] [--layers N] [--rounds N] [--dir DIR] [--threads N]
//
// Makes a directory of random weights of TinyLlama's widths (d 2048, ff 5632, 32 heads of 64, 4 of keys and values,
// V 32,000; 9 layers are 2.1 GB in fp32) unless DIR holds one, and loads it in fp32. Every measurement is a process of
// its own, reading and loading in turns; "cold": the file was dropped from the system's cache before. Memory is what
// the process takes (resident) more than before it loaded, at its peak and at the end.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/timing.h"
#include "model/files/checkpoint.h"
#include "tests/support/models.h"

namespace {

namespace fs = std::filesystem;
using namespace draftsmith;

struct Setting {
  fs::path directory = "/tmp/draftsmith_loading";
  at::ScalarType stored = at::kFloat;
  int64_t layers = 9;
  int rounds = 5;
  int threads = 2;
};

model::TransformerConfig shape(int64_t layers) {
  model::TransformerConfig config = model::llama_config({.vocabulary = 32000,
                                                         .width = 2048,
                                                         .heads = 32,
                                                         .kv_heads = 4,
                                                         .head_width = 64,
                                                         .ff_width = 5632,
                                                         .decoder_layers = layers});
  config.tied_head = false;
  config.max_positions = 2048;
  return config;
}

// Megabytes by the kernel's name for them in /proc/self/status.
double memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) / 1024;
  }
  return 0;
}

struct Measured {
  double seconds = 0;
  double peak = 0;      // MB
  double resident = 0;  // MB
};

// The file in memory of ours.
void read_whole(const fs::path& file) {
  const auto bytes = static_cast<size_t>(fs::file_size(file));
  const std::unique_ptr<char[]> memory(new char[bytes]);
  const int descriptor = ::open(file.c_str(), O_RDONLY);
  for (size_t done = 0; done < bytes;) {
    const ssize_t read = ::read(descriptor, memory.get() + done, std::min<size_t>(bytes - done, 1U << 26));
    if (read <= 0) std::exit(3);
    done += static_cast<size_t>(read);
  }
  ::close(descriptor);
}

void drop_from_cache(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY);
  ::fdatasync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

// Runs in a process of its own, so that peaks are its own.
Measured in_child(const Setting& setting, bool load) {
  int ends[2];
  if (::pipe(ends) != 0) std::exit(3);
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(setting.threads);
    const double before = memory("VmRSS");
    Measured measured;
    const Stopwatch watch;
    std::unique_ptr<model::TransformerModel> model;
    if (load) {
      model = model::load_model(setting.directory);
    } else {
      read_whole(setting.directory / "model.safetensors");
    }
    measured.seconds = watch.seconds();
    measured.peak = memory("VmHWM") - before;
    measured.resident = memory("VmRSS") - before;
    if (::write(ends[1], &measured, sizeof(measured)) != sizeof(measured)) std::_Exit(3);
    std::_Exit(0);
  }
  Measured measured;
  const bool complete = ::read(ends[0], &measured, sizeof(measured)) == sizeof(measured);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  if (!complete) std::exit(3);
  return measured;
}

void measure(const Setting& setting, bool cold) {
  const fs::path file = setting.directory / "model.safetensors";
  const double file_mb = static_cast<double>(fs::file_size(file)) / 1048576;
  const double weights_mb = file_mb * (setting.stored == at::kFloat ? 1 : 2);  // in fp32
  std::printf("%s, file of %.0f MB, weights of %.0f MB in fp32, %d threads\n", cold ? "cold" : "warm", file_mb,
              weights_mb, setting.threads);
  std::printf("%10s %10s %8s %14s %14s\n", "read s", "load s", "ratio", "peak/weights", "end/weights");
  for (int round = 0; round < setting.rounds; ++round) {
    if (cold) drop_from_cache(file);
    const Measured read = in_child(setting, false);
    if (cold) drop_from_cache(file);
    const Measured load = in_child(setting, true);
    std::printf("%10.2f %10.2f %8.2f %14.3f %14.3f\n", read.seconds, load.seconds, load.seconds / read.seconds,
                load.peak / weights_mb, load.resident / weights_mb);
    std::fflush(stdout);
  }
}

Setting parse(int argc, char** argv) {
  Setting setting;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--dtype") setting.stored = value == "bf16" ? at::kBFloat16 : at::kFloat;
    if (name == "--layers") setting.layers = std::stol(value);
    if (name == "--rounds") setting.rounds = std::stoi(value);
    if (name == "--threads") setting.threads = std::stoi(value);
    if (name == "--dir") setting.directory = value;
  }
  return setting;
}

}  // namespace

int main(int argc, char** argv) {
  const Setting setting = parse(argc, argv);
  // A process that has used OpenMP's threads must not fork and use them again: the weights are made in a child too.
  if (!fs::exists(setting.directory / "config.json")) {
    const pid_t child = ::fork();
    if (child == 0) {
      const model::TransformerModel made(shape(setting.layers), 1);
      model::save_model(setting.directory, made, {.dtype = setting.stored, .tokenizer = {}, .generation = {}});
      std::_Exit(0);
    }
    ::waitpid(child, nullptr, 0);
  }
  measure(setting, false);
  measure(setting, true);
  return 0;
}
