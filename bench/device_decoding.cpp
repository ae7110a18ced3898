// Decoding speed on a device, random weights made there: greedy decoding beside what the copy bandwidth of the same run
// allows, verification curves, cost ratios, speculation at known acceptance rates, and requests of the host a token.
// tools/gpu runs it.
//
//   build/release/bench/bench_device_decoding --device cuda --dtype bf16 --shapes t5-small,t5-large --batches 1,16
//     --pairs t5-large:t5-small --json FILE
//
// Prints a JSON record a line, medians of --rounds rounds; --json FILE is complete after each record. A shape that
// fails (too little memory) is a record with `problem`, and the rest goes on.
#include <functional>
#include <iostream>

#include <CLI/CLI.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "bench/support/bench_device.h"
#include "bench/support/decoding_measures.h"
#include "bench/support/random_model.h"
#include "bench/support/shapes.h"

namespace {

using namespace draftsmith;

struct Flags {
  std::string device = "auto";
  std::string dtype = "fp32";
  std::string shapes;
  std::string pairs;
  std::string batches = "1";
  std::string pair_batches = "1";
  std::string lengths = "1,2,3,4,5,6,8,12,16";
  std::vector<double> alphas = {0.6, 0.7, 0.8, 0.9};
  std::string measures = "greedy,verification,requests,drafting,speculation";
  int64_t rounds = 5;
  int64_t new_tokens = 64;
  int64_t source = 32;
  int64_t window = 4;
  int64_t copy_mb = 2048;
  int64_t threads = 0;
  std::string json;

  bool wants(const std::string& measure) const { return std::ranges::count(bench::split_list(measures), measure) > 0; }
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--device", flags.device, "auto, cpu, cuda, cuda:N or standin");
  app.add_option("--dtype", flags.dtype, "fp32, bf16, fp16 or fp64");
  app.add_option("--shapes", flags.shapes, "shapes that decode alone: t5-small,t5-large,...");
  app.add_option("--pairs", flags.pairs, "TARGET:DRAFTER,... for drafting and speculation");
  app.add_option("--batches", flags.batches, "rows of a batch, for --shapes");
  app.add_option("--pair-batches", flags.pair_batches, "rows of a batch, for --pairs");
  app.add_option("--lengths", flags.lengths, "tokens of the verification curve's steps");
  app.add_option("--alphas", flags.alphas, "acceptance rates of speculation")->delimiter(',');
  app.add_option("--measures", flags.measures, "greedy,verification,requests,drafting,speculation or some of them");
  app.add_option("--rounds", flags.rounds)->check(CLI::PositiveNumber);
  app.add_option("--new-tokens", flags.new_tokens)->check(CLI::PositiveNumber);
  app.add_option("--source", flags.source, "tokens of a source or prompt")->check(CLI::PositiveNumber);
  app.add_option("--window", flags.window, "drafted tokens of a round")->check(CLI::PositiveNumber);
  app.add_option("--copy-mb", flags.copy_mb, "size of the copy that measures the bandwidth")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads, "CPU threads; 0: LibTorch's choice");
  app.add_option("--json", flags.json, "also write the records here");
}

bench::MeasureSettings settings_of(const Flags& flags) {
  bench::MeasureSettings settings;
  settings.device = bench::prepare_device(flags.device, flags.threads);
  settings.type = parse_dtype(flags.dtype);
  settings.rounds = flags.rounds;
  settings.source = flags.source;
  settings.new_tokens = flags.new_tokens;
  settings.window = flags.window;
  settings.lengths = bench::split_numbers(flags.lengths, "--lengths");
  settings.alphas = flags.alphas;
  return settings;
}

// Does the work of one shape; an error becomes a record.
void guarded(const std::string& name, bench::Records& records, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    records.add("problem", {{"shape", name}, {"problem", text.substr(0, text.find('\n'))}});
  }
}

void measure_shape(const Flags& flags, const bench::MeasureSettings& settings, const std::string& name,
                   bench::DecodingMeasures& measures) {
  const auto model = bench::random_decoder(bench::shape_config(name), settings.device, settings.type);
  const bench::NamedModel named{name, *model};
  if (flags.wants("requests")) measures.requests(named);
  for (const int64_t rows : bench::split_numbers(flags.batches, "--batches")) {
    if (flags.wants("greedy")) measures.greedy(named, rows);
    if (flags.wants("verification")) measures.verification(named, rows);
  }
}

struct Pair {
  std::string target;
  std::string drafter;
};

// Throws UserError for something else than TARGET:DRAFTER,... of known shapes.
std::vector<Pair> pairs_of(const Flags& flags) {
  std::vector<Pair> pairs;
  for (const std::string& text : bench::split_list(flags.pairs)) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos) throw UserError({"--pairs", "not a pair", "TARGET:DRAFTER", "'" + text + "'", ""});
    pairs.push_back({text.substr(0, colon), text.substr(colon + 1)});
    bench::shape_config(pairs.back().target);
    bench::shape_config(pairs.back().drafter);
  }
  return pairs;
}

void measure_pair(const Flags& flags, const bench::MeasureSettings& settings, const Pair& pair,
                  bench::DecodingMeasures& measures) {
  const auto make = [&](const std::string& name) {
    return bench::random_decoder(bench::shape_config(name), settings.device, settings.type);
  };
  const auto target = make(pair.target);
  const auto drafter = make(pair.drafter);
  const bench::NamedModel large{pair.target, *target};
  const bench::NamedModel small{pair.drafter, *drafter};
  if (flags.wants("requests")) measures.round_requests(large, small);
  for (const int64_t rows : bench::split_numbers(flags.pair_batches, "--pair-batches")) {
    if (flags.wants("drafting")) measures.drafting(large, small, rows);
    if (flags.wants("speculation")) measures.speculation(large, small, rows);
  }
}

void measure(const Flags& flags) {
  const bench::MeasureSettings settings = settings_of(flags);
  const std::vector<Pair> pairs = pairs_of(flags);
  for (const std::string& name : bench::split_list(flags.shapes)) bench::shape_config(name);
  bench::Records records(flags.json, {{"device", bench::device_label(settings.device)}, {"dtype", flags.dtype}});
  bench::DecodingMeasures measures(settings, flags.copy_mb << 20, records);
  for (const std::string& name : bench::split_list(flags.shapes)) {
    guarded(name, records, [&] { measure_shape(flags, settings, name, measures); });
  }
  for (const Pair& pair : pairs) {
    guarded(pair.target + ":" + pair.drafter, records, [&] { measure_pair(flags, settings, pair, measures); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  Flags flags;
  CLI::App app("Decoding speed on a device, random weights");
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    measure(flags);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
