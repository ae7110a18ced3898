#include "cli/candidates.h"

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/device_tensors.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/options.h"
#include "base/signals.h"
#include "base/table.h"
#include "base/timing.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "infer/drafters/drafter.h"
#include "infer/drafters/registry.h"
#include "model/files/checkpoint.h"
#include "model/models/feature_drafter.h"
#include "model/pruning/pruning.h"
#include "recipes/export/export_model.h"
#include "recipes/stages/starting_models.h"
#include "train/objectives/objective.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/trainable_features.h"
#include "train/trainable/trainable_model.h"
#include "train/training_step.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;
using model::TransformerConfig;

constexpr int64_t kFewestIds = 4096;  // of targets whose vocabulary is worth pruning
constexpr int64_t kKeptIds = 8192;    // of a pruned one, or a quarter: more than outputs of a task use often

// Alphas: docs/reference/training.md. Projections begin as the unit matrix: what is cut out has the target's width.
constexpr std::array<CandidateKind, 5> kKinds = {{
    {.name = "layers"},
    {.name = "vocabulary", .prunes_vocabulary = true, .alpha = -0.02},
    {.name = "tandem",
     .start = "tandem = { primary = <target>, block = 4, projections = \"identity\" }",
     .drafter_key = "tandem",
     .alpha = -0.03,
     .rate = 3,
     .lambda = 0.5,
     .runs_target = true},
    {.name = "shared-encoder",
     .start = "shared_encoder = { target = <target>, projection = \"identity\" }",
     .reads_encoder = true,
     .alpha = 0.01},
    {.name = "features",
     .start = "features = { target = <target>, <cut>unrolled = 5 }",
     .drafter_key = "features",
     .reads_states = true,
     .alpha = 0.1,
     .lambda = 0,
     .runs_target = true},
}};

// The target in fp32, as stages read it: once for all candidates.
struct WholeTarget {
  std::unique_ptr<model::TransformerModel> read;   // on the CPU
  std::unique_ptr<model::TransformerModel> moved;  // on another device, once it is needed there
  model::TransformerModel& on(at::Device device, const fs::path& directory) {
    if (device.is_cpu()) return *read;
    if (!moved) moved = model::load_model(directory, {.device = device, .pack = false});
    return *moved;
  }
};

// Returns the models of the train stage of a drafter that reads the target's states.
recipes::StartingModels feature_start_of(const Candidate& made, const CandidateInputs& inputs, WholeTarget& whole,
                                         const model::PruneOptions& prune, const model::PruneEvidence& evidence) {
  model::FeatureStart start{.unrolled = 5};  // as in its row
  if (made.vocabulary > 0) start.vocabulary = model::kept_vocabulary(*whole.read, prune, evidence);
  model::TransformerModel& target = whole.on(inputs.load.device, inputs.target.directory);
  recipes::StartingModels models;
  models.models.push_back(model::make_feature_drafter(target, start));
  models.trainable = std::make_unique<train::FeatureTrainable>(
      *models.models.front(), target, train::FeatureTrainableOptions{.target_directory = inputs.target.directory});
  return models;
}

// Returns the models of the candidate's train stage, whose pruned model is written to `pruned`. Which of the layers and
// ids stay does not change times.
recipes::StartingModels start_of(const Candidate& made, const CandidateInputs& inputs, WholeTarget& whole,
                                 const fs::path& pruned) {
  model::PruneOptions prune;
  model::PruneEvidence evidence;
  if (made.vocabulary > 0) {
    prune.vocabulary_size = made.vocabulary;
    evidence.token_counts.assign(static_cast<size_t>(whole.read->config().vocabulary), 1);
  }
  if (made.kind->reads_states) return feature_start_of(made, inputs, whole, prune, evidence);
  prune.encoder_layers = whole.read->config().encoder_layers > 1 ? "every:2" : "";
  prune.decoder_layers = fmt::format("every:{}", made.every);
  model::save_model(pruned, *model::prune(*whole.read, prune, evidence));
  const std::string target = toml_quoted(fs::canonical(inputs.target.directory).string());
  const std::string start = replace_all(made.kind->start, "<target>", target);
  Problems problems;
  const auto table = parse_toml(fmt::format("from = {}\n{}", toml_quoted(pruned.string()), start), made.kind->name);
  const auto options = parse_options<recipes::StartOptions>(table, "", problems);
  problems.throw_if_any();
  return recipes::starting_models(options, *inputs.target.tokenizer, {.device = inputs.load.device}, made.distilled);
}

// Measures passes forward and back on one example of random ids, as the stage computes them, with those of the target
// where it teaches, unless its states are stored.
void measure_training(train::TrainableModel& trainable, Candidate& made, const CandidateInputs& inputs,
                      WholeTarget& whole) {
  constexpr int64_t kRows = 8;
  const int64_t vocabulary = inputs.target.model->info().vocabulary;
  std::vector<std::vector<int32_t>> ids;
  const int64_t known = made.vocabulary > 0 ? made.vocabulary : vocabulary;  // the lower ids are those that stay
  for (const auto& row : infer::random_sources(kRows, inputs.example_tokens, known)) {
    ids.emplace_back(row.begin(), row.end());
  }
  std::vector<train::ExampleTokens> examples;
  for (const auto& row : ids) examples.push_back({std::span(row).first((row.size() + 1) / 2), row});
  const train::Batch batch = train::make_batch(examples, trainable.info());
  model::TransformerModel* live = nullptr;
  if (made.distilled && !trainable.teaches()) live = &whole.on(inputs.load.device, inputs.target.directory);
  const at::Device device = trainable.info().device;
  const bool bf16 = train::trains_in_bf16("auto", device);
  const auto loss = [&] {
    const AutocastScope autocast(device.type(), bf16);
    if (!made.distilled) return train::make_objective({})->loss(trainable, batch, {});
    const train::TrainableOutput output = trainable.forward(batch, {});
    const auto teacher = live ? train::LiveTeacher(*live).distributions(batch)
                              : std::make_unique<train::HiddenTeacher>(output.teacher.value());
    return train::distillation_of(output, *teacher, vocabulary, {});
  };
  train::require_gradients(trainable, true);
  double seconds = 0;
  for (int step = 0; step < 3; ++step) {  // the last one counts
    const Stopwatch watch;
    loss().sum.backward();
    synchronize(device);
    seconds = watch.seconds();
  }
  made.example_seconds = seconds / kRows;
  if (!made.kind->reads_states) return;
  const AutocastScope autocast(device.type(), bf16);
  const Stopwatch watch;
  train::LiveTeacher(whole.on(inputs.load.device, inputs.target.directory)).distributions(batch);
  synchronize(device);
  made.states_seconds = watch.seconds() / kRows;
  made.example_seconds = std::max(made.example_seconds - made.states_seconds, 0.1 * made.example_seconds);
}

infer::StepCosts costs_of(const infer::LoadedDrafter& drafter, const CandidateInputs& inputs) {
  return drafter.step_costs({*inputs.target.model, inputs.target.tokenizer.get()}, inputs.context, inputs.longest + 1);
}

// Makes a candidate as a recipe's stages would, in a temporary directory, and measures it.
Candidate measured(const CandidateKind& kind, int64_t every, WholeTarget& whole, const CandidateInputs& inputs) {
  work_point();
  const TransformerConfig& target = whole.read->config();
  const bool cuts =
      kind.prunes_vocabulary || (kind.reads_states && !target.encoder_decoder && target.vocabulary >= kFewestIds);
  Candidate made{.kind = &kind,
                 .every = every,
                 .layers = (target.decoder_layers + every - 1) / every,
                 .vocabulary = cuts ? std::min(target.vocabulary / 4, kKeptIds) : 0,
                 .length = inputs.length,
                 .distilled = inputs.distils || kind.runs_target};
  const double more = inputs.alpha_doubled * std::log2(static_cast<double>(made.layers)) + kind.alpha;
  made.alpha = std::clamp(inputs.alpha + (inputs.alpha_doubled > 0 ? more : 0), 0.0, 1.0);
  const TemporaryDirectory folder(inputs.folder);
  const recipes::StartingModels start = start_of(made, inputs, whole, folder / "pruned");
  for (const auto& [name, values] : start.trainable->parameters()) made.numbers += static_cast<double>(values.numel());
  model::SaveOptions save;
  save.tokenizer = inputs.target.tokenizer->file();
  start.trainable->save_result(folder / "drafter", save);
  made.refusals = recipes::export_refusals(folder / "drafter");
  const auto spec = infer::parse_drafter((folder / "drafter").string());
  made.costs = costs_of(*infer::load_drafter(spec, {}, inputs.load), inputs);
  if (inputs.example_tokens > 0) measure_training(*start.trainable, made, inputs, whole);
  return made;
}

// Returns in sentences what the choice rests on.
std::string reasons(std::span<const Candidate> candidates, const Candidate& chosen) {
  const std::optional<double> even = chosen.pays_from();
  std::string text = fmt::format("Chosen: {}. {}, and {:.2f} is assumed{}.", chosen.name(),
                                 even ? fmt::format("It pays from alpha {:.2f} on", *even) : "It pays at no alpha",
                                 chosen.alpha, chosen.score() > 1 ? "" : ": theory expects no gain");
  const Candidate& best = *std::ranges::max_element(candidates, {}, &Candidate::score);
  if (best.kind != nullptr && best.score() > chosen.score()) {
    text += fmt::format(" Theory prefers {} (--kind {}).", best.name(), best.kind->name);
  }
  std::vector<std::string> formats;
  for (const auto& [format, refusal] : chosen.refusals) {
    formats.push_back(refusal.empty() ? format : fmt::format("not {}: {}", format, refusal));
  }
  return wrapped(text, 98, 0, 2) + wrapped(fmt::format("Export: {}.", fmt::join(formats, "; ")), 98, 0, 2);
}

}  // namespace

std::string Candidate::name() const {
  return kind == nullptr ? "prompt look-up" : fmt::format("{}, {}", kind->name, layers);
}

double Candidate::score() const {
  const double speedup = best(alpha).speedup;
  return speedup > 1 ? speedup : 1 - std::max(0.0, pays_from().value_or(2) - alpha);
}

std::pair<bool, double> Candidate::rank(bool for_gguf) const {
  return {(!for_gguf || refusals.at("gguf").empty()) && score() >= 1.1, score()};
}

std::vector<Candidate> measure_candidates(const CandidateInputs& inputs) {
  WholeTarget whole{.read = model::load_model(inputs.target.directory, {.pack = false}), .moved = nullptr};
  const TransformerConfig& target = whole.read->config();
  const int64_t all = target.decoder_layers;
  std::vector<Candidate> made;
  for (const int64_t every : std::set{all, (all + 1) / 2, (all + 3) / 4, int64_t{4}}) {
    const bool known = std::ranges::count(made, (all + every - 1) / every, &Candidate::layers) > 0;
    if (every >= 2 && every <= all && !known) made.push_back(measured(kKinds.front(), every, whole, inputs));
  }
  std::vector<Candidate> shapes = made;
  std::ranges::stable_sort(shapes, std::greater(), &Candidate::score);
  shapes.resize(std::min<size_t>(shapes.size(), 2));
  for (const Candidate& shape : shapes) {
    for (const CandidateKind& kind : std::span(kKinds).subspan(1)) {
      if (kind.prunes_vocabulary && target.vocabulary < kFewestIds) continue;
      if (kind.reads_encoder && !target.encoder_decoder) continue;
      if (kind.reads_states && &shape != shapes.data()) continue;
      try {
        made.push_back(measured(kind, kind.reads_states ? all : shape.every, whole, inputs));
      } catch (const UserError& error) {  // of a family that the kind cannot read
        log_info("no candidate of kind {}: {}", kind.name, error.problems().front().what);
      }
    }
  }
  made.push_back({.length = inputs.length});
  made.back().costs = costs_of(*infer::lookup_drafter(infer::kLongestLookup), inputs);
  return made;
}

std::string candidates_text(std::span<const Candidate> candidates, const Candidate* chosen) {
  std::vector<Column> columns = {{"drafter, layers", Align::kLeft}};
  for (const char* header : {"M", "step", "window", "alpha .5", ".6", ".7", ".8", "pays from", "assumed", "min", ""}) {
    columns.push_back({header});
  }
  Table table(columns);
  const auto known = [](double value, int digits) { return value > 0 ? fmt::format("{:.{}f}", value, digits) : ""; };
  for (const Candidate& one : candidates) {
    std::vector<std::string> row = {one.name(), known(one.numbers / 1e6, 2),
                                    fmt::format("{:.2f}", one.costs.cost_ratio()), std::to_string(one.window())};
    for (const double alpha : {0.5, 0.6, 0.7, 0.8}) row.push_back(fmt::format("{:.2f}", one.best(alpha).speedup));
    const std::optional<double> even = one.pays_from();
    row.insert(row.end(), {even ? known(*even, 2) : "never", known(one.alpha, 2), known(one.minutes, 1),
                           &one == chosen ? "*" : ""});
    table.add_row(row);
  }
  table.drop_empty_columns();
  return table.text(98) + (chosen == nullptr ? "" : reasons(candidates, *chosen));
}

std::vector<std::string> candidate_kinds() {
  std::vector<std::string> names;
  for (const CandidateKind& kind : kKinds) names.emplace_back(kind.name);
  names.emplace_back("any");
  return names;
}

}  // namespace draftsmith::cli
