// Checks of decoding on a device, random weights made there, to be passed before anything is timed: tools/gpu runs it.
//
//   build/release/bench/bench_device_checks --checks smoke,shapes --device cuda --dtypes fp32,bf16 --json FILE
//
// smoke: own kernels run, steps are recorded, and neither changes tiny models' numbers. shapes: numbers and lossless
// methods at real sizes. Prints a JSON record a check. Ends with 1 if any fails.
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/device_kernels.h"
#include "base/error.h"
#include "bench/support/bench_device.h"
#include "bench/support/benches.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::bench {
namespace {

using infer::random_sources;
using Ids = std::vector<std::vector<int64_t>>;

struct CheckSettings {
  std::string shape;  // bench/support/benches.h; its weights are random
  c10::Device device{c10::kCPU};
  c10::ScalarType type = c10::ScalarType::Float;
  int64_t lines = 8;        // that are decoded
  int64_t new_tokens = 24;  // of each
};

struct CheckResult {
  std::string name;
  std::string shape;
  std::string dtype;
  double value = 0;
  double bound = 0;       // the most that passes
  bool at_least = false;  // the bound is the least that passes
  bool passed = false;
  std::string note;     // why the bound does not hold here; empty: it does
  std::string problem;  // the error that ended the check; empty: none
};

using OnCheck = std::function<void(const CheckResult&)>;

constexpr int64_t kManyRows = 16;
constexpr int64_t kWindow = 4;  // of drafts
constexpr int64_t kSteps = 4;   // of one token: the first as it is, the second recorded, the others replayed

// Fast way that models may not use.
enum class Without { kNothing, kKernels, kRecordings };

// Turns it off while this exists.
class Ways {
 public:
  explicit Ways(Without without) {
    if (without == Without::kKernels) want_own_kernels(false);
    if (without == Without::kRecordings) want_recordings(false);
  }
  ~Ways() {
    want_own_kernels(kernels_);
    want_recordings(recordings_);
  }
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;

 private:
  bool kernels_ = wants_own_kernels();
  bool recordings_ = wants_recordings();
};

// A model that has the first layers of another one.
model::TransformerConfig drafter_of(model::TransformerConfig config) {
  const auto fewer = [](int64_t layers) { return std::min<int64_t>(2, (layers + 1) / 2); };
  config.encoder_layers = fewer(config.encoder_layers);
  config.decoder_layers = fewer(config.decoder_layers);
  return config;
}

double lines_that_differ(const Ids& a, const Ids& b) {
  int64_t count = 0;
  for (size_t i = 0; i < b.size(); ++i) count += a.at(i) == b[i] ? 0 : 1;
  return static_cast<double>(count);
}

CheckResult at_most(double value, double bound = 0) {
  CheckResult found;
  found.value = value;
  found.bound = bound;
  return found;
}

CheckResult at_least_one(int64_t value, const char* note) {
  CheckResult found = at_most(static_cast<double>(value), 1);
  found.at_least = true;
  found.note = note;
  return found;
}

double relative_difference(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

class Checks {
 public:
  Checks(const CheckSettings& settings, int64_t source, const OnCheck& report)
      : settings_(settings), source_(source), report_(report), config_(shape_config(settings.shape)) {}

  // Does a check, which returns value, bound and note, and reports it; an error fails it.
  void add(const std::string& name, const std::function<CheckResult()>& check) const {
    CheckResult result;
    try {
      result = check();
      const bool holds = result.at_least ? result.value >= result.bound : result.value <= result.bound;
      result.passed = holds || !result.note.empty();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      result.problem = text.substr(0, text.find('\n'));
    }
    result.name = name;
    result.shape = settings_.shape;
    result.dtype = dtype_name(settings_.type);
    report_(result);
  }

  bool exact() const { return settings_.type == at::kFloat || settings_.type == at::kDouble; }

  // Returns the outputs of greedy decoding, one line at a time.
  const Ids& greedy() {
    if (!greedy_.empty()) return greedy_;
    const DeviceExecution before = device_execution();
    const Ids ids = decoded(target(), "greedy", 1);
    const DeviceExecution after = device_execution();
    launches_ = after.kernel_launches - before.kernel_launches;
    replays_ = after.replays - before.replays;
    return greedy_ = ids;
  }

  CheckResult launches() {
    greedy();
    const bool needed = settings_.device.is_cuda() || launches_ > 0;
    return at_least_one(launches_, needed ? "" : "this device need not run own kernels");
  }

  CheckResult replays() {
    greedy();
    return at_least_one(replays_, settings_.device.is_cpu() ? "CPUs record nothing" : "");
  }

  // Returns how many lines of greedy decoding with a new model differ.
  CheckResult greedy_without(Without without) {
    const Ids expected = greedy();
    const Ways ways(without);
    return at_most(lines_that_differ(decoded(*made(config_), "greedy", 1), expected));
  }

  // Returns how many lines of another method, or of a batch, differ.
  CheckResult lossless(const std::string& method, int64_t rows) {
    CheckResult found = at_most(lines_that_differ(decoded(target(), method, rows), greedy()));
    if (exact()) return found;
    if (launches_ == 0) found.note = "LibTorch's products of several rows round differently";
    if (rows > 1) found.note = "encoder and prompts are rounded differently in a batch";
    if (!found.note.empty()) found.bound = static_cast<double>(settings_.lines);
    return found;
  }

  CheckResult logits_without_kernels() const {
    // Half types are rounded at other places: .007 to .03 of the norm, by simulations of tiny and of real shapes.
    return at_most(relative_difference(logits(), logits(Without::kKernels)), exact() ? 1e-4 : 5e-2);
  }

  CheckResult bad_logits() const {
    const at::Tensor all = logits();
    return at_most(static_cast<double>(all.numel() - all.isfinite().sum().item<int64_t>()));
  }

  // Returns how many of equal rows differ from the same row alone.
  CheckResult rows_that_differ() {
    greedy();
    const at::Tensor alone = stepped(1)[0];
    const at::Tensor rows = stepped(kManyRows);
    int64_t differ = 0;
    for (int64_t i = 0; i < kManyRows; ++i) differ += at::equal(rows[i], alone) ? 0 : 1;
    CheckResult found = at_most(static_cast<double>(differ));
    if (launches_ == 0) found.note = "LibTorch's products promise nothing";
    return found;
  }

 private:
  std::unique_ptr<model::TransformerModel> made(const model::TransformerConfig& config) const {
    return random_decoder(config, settings_.device, settings_.type);
  }

  model::TransformerModel& target() {
    if (!target_) target_ = made(config_);
    return *target_;
  }

  Ids decoded(model::TransformerModel& model, const std::string& method, int64_t rows) {
    infer::DecodeOptions options;
    options.method = method;
    options.temperature = 0;
    options.batch_size = rows;
    options.max_new_tokens = settings_.new_tokens;
    infer::GenerationModels models;
    models.target = &model;
    if (options.drafts()) {
      if (!drafter_) drafter_ = made(drafter_of(config_));
      models.drafter = infer::as_drafter(*drafter_);
      options.window = kWindow;
      if (method == "assisted") options.schedule = "constant";  // never more rows than own kernels take
    }
    infer::Generator generator(models, options);
    const auto results = generator.generate(random_sources(settings_.lines, source_, config_.vocabulary));
    infer::throw_if_failed(results);
    Ids ids;
    for (const auto& result : results) ids.push_back(result.ids);
    return ids;
  }

  // Returns a new model's logits of a step of one token, the last of some equal ones. fp64 [1,1,V] on the CPU.
  at::Tensor logits(Without without = Without::kNothing) const {
    const Ways ways(without);
    const auto model = made(config_);
    const infer::ContextSize size{.rows = 1, .source = source_, .length = source_};
    infer::TimedModel step(*model, infer::random_context(model->info(), size), 1);
    for (int64_t i = 0; i < kSteps; ++i) {
      step.go_back();
      step.run(1);
    }
    return step.output().logits.to(at::kCPU).to(at::kDouble);
  }

  // Returns the logits of a few steps of one token, of rows that are equal. [rows,kSteps,V] on the CPU.
  at::Tensor stepped(int64_t rows) {
    const model::DecodingGuard guard;
    model::TransformerModel& model = target();
    model::EncoderStates source;  // of one row, whatever the number of rows is
    if (config_.encoder_decoder) {
      source = model.encode(infer::equal_rows(model, random_sources(1, source_, config_.vocabulary).front()));
    }
    const auto state = config_.encoder_decoder ? model.begin(source, kSteps, rows) : model.begin(rows, kSteps);
    const Ids tokens = random_sources(1, kSteps, config_.vocabulary);
    std::vector<at::Tensor> logits;
    for (const int64_t token : tokens.front()) {
      const model::TokenBatch batch = infer::equal_rows(model, std::vector{token}, rows);
      logits.push_back(model.step({batch.tokens, batch.lengths, model::Logits::kAll, {}}, *state).logits.to(at::kCPU));
    }
    return at::cat(logits, 1);
  }

  const CheckSettings& settings_;
  int64_t source_;  // tokens of a source or prompt
  const OnCheck& report_;
  model::TransformerConfig config_;
  std::unique_ptr<model::TransformerModel> target_;
  std::unique_ptr<model::TransformerModel> drafter_;
  Ids greedy_;
  int64_t launches_ = 0;  // of own kernels by greedy()
  int64_t replays_ = 0;
};

// Checks the ways of decoding, in a few seconds: own kernels run, steps are recorded, and neither changes the numbers.
void check_ways(const CheckSettings& settings, const OnCheck& report) {
  Checks checks(settings, 16, report);
  checks.add("kernels_found", [&] { return checks.launches(); });
  checks.add("graph_recorded", [&] { return checks.replays(); });
  checks.add("ids_default_eager", [&] { return checks.greedy_without(Without::kRecordings); });
  // Equally likely tokens of few bits may be taken in another order.
  if (checks.exact()) checks.add("ids_default_no_kernels", [&] { return checks.greedy_without(Without::kKernels); });
  checks.add("logits_default_no_kernels", [&] { return checks.logits_without_kernels(); });
  checks.add("logits_finite", [&] { return checks.bad_logits(); });
}

// Checks numbers of real sizes: logits by own kernels beside LibTorch's, a row alone and among others, and outputs of
// methods that must equal greedy decoding's.
void check_numbers(const CheckSettings& settings, const OnCheck& report) {
  Checks checks(settings, 32, report);
  checks.add("logits_kernels", [&] { return checks.logits_without_kernels(); });
  checks.add("row_alone", [&] { return checks.rows_that_differ(); });
  checks.add("lossless_eager", [&] { return checks.greedy_without(Without::kRecordings); });
  checks.add("lossless_batch_16", [&] { return checks.lossless("greedy", kManyRows); });
  checks.add("lossless_speculative", [&] { return checks.lossless("speculative", 1); });
  checks.add("lossless_assisted", [&] { return checks.lossless("assisted", 1); });
}

// ---- The program ----

struct Flags {
  std::string checks = "smoke";
  std::string device = "auto";
  std::string dtypes = "fp32,bf16";
  std::string shapes;
  int64_t threads = 0;
  std::string json;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--checks", flags.checks, "smoke, shapes or both");
  app.add_option("--device", flags.device, "auto, cpu, cuda, cuda:N or standin");
  app.add_option("--dtypes", flags.dtypes, "fp32,bf16,...");
  app.add_option("--shapes", flags.shapes, "empty: tiny-t5,tiny-llama for smoke, t5-large,llama-1b for shapes");
  app.add_option("--threads", flags.threads, "CPU threads; 0: LibTorch's choice");
  app.add_option("--json", flags.json, "also write the records here");
}

nlohmann::ordered_json record_of(const CheckResult& result) {
  nlohmann::ordered_json record{{"check", result.name},  {"shape", result.shape}, {"dtype", result.dtype},
                                {"value", result.value}, {"bound", result.bound}, {"passed", result.passed}};
  if (!result.note.empty()) record["note"] = result.note;
  if (!result.problem.empty()) record["problem"] = result.problem;
  return record;
}

// Returns whether all checks passed.
bool check(const Flags& flags) {
  const at::Device device = prepare_device(flags.device, flags.threads);
  Records records(flags.json, {{"device", device_label(device)}});
  bool passed = true;
  const OnCheck report = [&](const CheckResult& result) {
    records.add("check", record_of(result));
    passed = passed && result.passed;
  };
  for (const std::string& name : split_list(flags.checks)) {
    const bool smoke = name == "smoke";
    if (!smoke && name != "shapes") {
      throw UserError({"--checks", "unknown checks", "smoke or shapes", "'" + name + "'", ""});
    }
    const char* defaults = smoke ? "tiny-t5,tiny-llama" : "t5-large,llama-1b";
    for (const std::string& shape : split_list(flags.shapes.empty() ? defaults : flags.shapes)) {
      for (const std::string& dtype : split_list(flags.dtypes)) {
        const CheckSettings settings{shape, device, parse_dtype(dtype, "--dtypes")};
        (smoke ? check_ways : check_numbers)(settings, report);
      }
    }
  }
  return passed;
}

}  // namespace
}  // namespace draftsmith::bench

namespace bench = draftsmith::bench;

int main(int argc, char** argv) {
  bench::Flags flags;
  CLI::App app("Checks of decoding on a device, random weights");
  bench::add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    return bench::check(flags) ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
