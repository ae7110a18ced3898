#include "cli/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/device.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/options.h"
#include "base/signals.h"
#include "base/table.h"
#include "base/timing.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "infer/costs/decode_work.h"
#include "infer/drafters/drafter.h"
#include "infer/drafters/registry.h"
#include "model/files/checkpoint.h"
#include "model/pruning/pruning.h"
#include "recipes/export/export_model.h"
#include "recipes/stages/starting_models.h"
#include "train/objectives/objective.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::cli {

namespace {

namespace fs = std::filesystem;
using model::TransformerConfig;

constexpr std::array<double, 4> kShownAlphas = {0.5, 0.6, 0.7, 0.8};

// Returns how many ids a pruned vocabulary has: more than outputs of a task use often.
int64_t kept_ids(const TransformerConfig& target) {
  return std::min<int64_t>(target.vocabulary / 4, 8192);
}

// Returns whether fewer ids spare a fifth of the bytes that a step of so few layers reads.
bool head_weighs(const TransformerConfig& target, int64_t layers, at::ScalarType type) {
  if (target.vocabulary < 4096) return false;
  TransformerConfig drafter = target;
  drafter.decoder_layers = layers;
  const auto whole = static_cast<double>(infer::step_weight_bytes(drafter, type));
  drafter.draft_vocabulary.ids.resize(static_cast<size_t>(kept_ids(target)));
  return static_cast<double>(infer::step_weight_bytes(drafter, type)) < 0.8 * whole;
}

bool has_encoder(const TransformerConfig& target, int64_t /*layers*/, at::ScalarType /*type*/) {
  return target.encoder_decoder;
}

// What is accepted beside pruned layers: .02 of tokens lack a row; .03 more came of multi30k_all's shared encoder.
constexpr std::array<CandidateKind, 4> kKinds = {{
    {.name = "layers"},
    {.name = "vocabulary", .prunes_vocabulary = true, .fits = head_weighs, .alpha = -0.02},
    {.name = "tandem",
     .start = "tandem = { primary = <target>, block = 4 }",
     .drafter_key = "tandem",
     .lambda = 0.5,
     .runs_target = true},
    {.name = "shared-encoder",
     .start = "shared_encoder = { target = <target> }",
     .fits = has_encoder,
     .alpha = 0.03},
}};

// ---- Making and measuring one

// Writes the target with fewer layers, and of fewer ids if the candidate has so. Which ones does not change its times.
void write_pruned(const Candidate& made, const CandidateInputs& inputs, const fs::path& directory) {
  const auto whole = model::load_model(inputs.target.directory, {.pack = false});
  model::PruneOptions options{.encoder_layers = whole->config().encoder_decoder ? "every:2" : "",
                              .decoder_layers = fmt::format("every:{}", made.every)};
  model::PruneEvidence evidence;
  if (made.vocabulary > 0) {
    options.vocabulary_size = made.vocabulary;
    evidence.token_counts.assign(static_cast<size_t>(whole->config().vocabulary), 1);
  }
  model::save_model(directory, *model::prune(*whole, options, evidence), {.tokenizer = inputs.target.tokenizer->file()});
}

recipes::StartOptions start_options(const CandidateKind& kind, const fs::path& target, const fs::path& from) {
  Problems problems;
  const std::string text = fmt::format("from = {}\n{}", toml_quoted(from.string()), start_lines(kind, target));
  auto options = parse_options<recipes::StartOptions>(parse_toml(text, kind.name), "", problems);
  problems.throw_if_any();
  return options;
}

train::Batch random_batch(int64_t rows, int64_t tokens, const model::ModelInfo& model) {
  std::vector<std::vector<int32_t>> ids;
  for (const auto& row : infer::random_sources(rows, tokens, model.vocabulary)) ids.emplace_back(row.begin(), row.end());
  std::vector<train::ExampleTokens> examples;
  for (const auto& row : ids) examples.push_back({std::span(row).first((row.size() + 1) / 2), row});
  return train::make_batch(examples, model);
}

// Returns the seconds of passes forward and back on one example of random ids, in fp32, with those of the target where
// it teaches.
double example_seconds(train::TrainableModel& trainable, bool distilled, const CandidateInputs& inputs) {
  constexpr int64_t kRows = 8;
  std::unique_ptr<model::TransformerModel> teacher;
  if (distilled && !trainable.teaches()) {
    teacher = model::load_model(inputs.target.directory, {.device = inputs.load.device});
  }
  const auto loss_of = [&](const train::Batch& batch) {
    if (!distilled) return train::make_objective({})->loss(trainable, batch, {});
    const train::TrainableOutput output = trainable.forward(batch, {});
    const int64_t vocabulary = inputs.target.model->info().vocabulary;
    if (teacher) {
      return train::distillation_of(output, *train::LiveTeacher(*teacher).distributions(batch), vocabulary, {});
    }
    train::HiddenTeacher own(output.teacher.value());
    return train::distillation_of(output, own, vocabulary, {});
  };
  train::require_gradients(trainable, true);
  double seconds = 0;
  for (int step = 0; step < 3; ++step) {  // the last one counts
    const Stopwatch watch;
    loss_of(random_batch(kRows, inputs.example_tokens, trainable.info())).sum.backward();
    synchronize(trainable.info().device);
    seconds = watch.seconds();
  }
  return seconds / kRows;
}

infer::StepCosts costs_of(const infer::LoadedDrafter& drafter, const CandidateInputs& inputs) {
  const infer::DraftTarget target{*inputs.target.model, inputs.target.tokenizer.get()};
  return drafter.step_costs(target, inputs.context, inputs.longest + 1);
}

// Returns a candidate with all that is known before it is made.
Candidate planned(const CandidateKind& kind, int64_t every, const TransformerConfig& target,
                  const CandidateInputs& inputs) {
  Candidate made{.kind = &kind, .every = every, .layers = (target.decoder_layers + every - 1) / every};
  made.vocabulary = kind.prunes_vocabulary ? kept_ids(target) : 0;
  made.length = inputs.length;
  made.distilled = inputs.distils || kind.runs_target;
  const double doublings = std::log2(static_cast<double>(made.layers));
  const double more = inputs.alpha_doubled > 0 ? inputs.alpha_doubled * doublings + kind.alpha : 0;
  made.alpha = std::clamp(inputs.alpha + more, 0.0, 0.95);
  return made;
}

// Makes a candidate as a recipe's stages would, in a temporary directory, and measures it.
void measure(Candidate& made, const CandidateInputs& inputs) {
  work_point();
  const TemporaryDirectory folder;
  write_pruned(made, inputs, folder / "pruned");
  const recipes::StartingModels start =
      recipes::starting_models(start_options(*made.kind, inputs.target.directory, folder / "pruned"),
                               *inputs.target.tokenizer, {.device = inputs.load.device}, made.distilled);
  start.trainable->save_result(folder / "drafter", {.tokenizer = inputs.target.tokenizer->file()});
  for (const auto& [name, parameter] : start.trainable->parameters()) {
    made.numbers += static_cast<double>(parameter.numel());
  }
  made.refusals = recipes::export_refusals(folder / "drafter");
  const auto spec = infer::parse_drafter((folder / "drafter").string());
  made.costs = costs_of(*infer::load_drafter(spec, {}, inputs.load), inputs);
  if (inputs.example_tokens > 0) made.example_seconds = example_seconds(*start.trainable, made.distilled, inputs);
}

}  // namespace

// ---- One candidate

std::string Candidate::name() const {
  return kind == nullptr ? "prompt look-up" : fmt::format("{}, {}", kind->name, layers);
}

evaluate::BestWindow Candidate::best(double at) const {
  return evaluate::best_window(at, costs, std::ssize(costs.target) - 1, length);
}

std::optional<double> Candidate::pays_from() const {
  return evaluate::break_even_alpha(costs, std::ssize(costs.target) - 1, length);
}

int64_t Candidate::window() const {
  return best(std::max(alpha, pays_from().value_or(1))).window;
}

double Candidate::score() const {
  const double speedup = best(alpha).speedup;
  return speedup > 1 ? speedup : 1 - std::max(0.0, pays_from().value_or(2) - alpha);
}

std::string start_lines(const CandidateKind& kind, const fs::path& target) {
  return replace_all(kind.start, "<target>", toml_quoted(fs::canonical(target).string()));
}

std::vector<std::string> candidate_kinds() {
  std::vector<std::string> names;
  for (const CandidateKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

// ---- All of them

std::vector<Candidate> measure_candidates(const CandidateInputs& inputs) {
  const TransformerConfig target = model::read_settings(inputs.target.directory).config;
  const int64_t all = target.decoder_layers;
  std::vector<Candidate> made;
  for (const int64_t every : std::set{all, (all + 1) / 2, (all + 3) / 4, int64_t{4}}) {
    if (every < 2 || every > all) continue;
    made.push_back(planned(kKinds.front(), every, target, inputs));
    measure(made.back(), inputs);
  }
  std::vector<Candidate> shapes = made;
  std::ranges::stable_sort(shapes, std::greater(), &Candidate::score);
  shapes.resize(std::min<size_t>(shapes.size(), 2));
  for (const Candidate& shape : shapes) {
    for (const CandidateKind& kind : std::span(kKinds).subspan(1)) {
      if (kind.fits != nullptr && !kind.fits(target, shape.layers, inputs.load.dtype)) continue;
      Candidate other = planned(kind, shape.every, target, inputs);
      try {
        measure(other, inputs);
        made.push_back(std::move(other));
      } catch (const UserError& error) {  // of a family that the kind does not fit
        log_info("no {}: {}", other.name(), error.problems().front().what);
      }
    }
  }
  made.push_back({.length = inputs.length});
  made.back().costs = costs_of(*infer::lookup_drafter(infer::kLongestLookup), inputs);
  return made;
}

std::string candidates_table(std::span<const Candidate> candidates, const Candidate* chosen) {
  Table table({{"drafter, layers", Align::kLeft},
               {"M"},
               {"step"},
               {"window"},
               {"alpha .5"},
               {".6"},
               {".7"},
               {".8"},
               {"pays from"},
               {"assumed"},
               {"minutes"},
               {""}});
  for (const Candidate& one : candidates) {
    const bool trained = one.kind != nullptr;
    const std::optional<double> even = one.pays_from();
    std::vector<std::string> row = {one.name(), trained ? fmt::format("{:.3g}", one.numbers / 1e6) : "",
                                    fmt::format("{:.2f}", one.costs.cost_ratio()),
                                    std::to_string(one.window())};
    for (const double alpha : kShownAlphas) row.push_back(fmt::format("{:.2f}", one.best(alpha).speedup));
    row.push_back(even ? fmt::format("{:.2f}", *even) : "never");
    row.push_back(trained ? fmt::format("{:.2f}", one.alpha) : "");
    row.push_back(one.minutes > 0 ? fmt::format("{:.1f}", one.minutes) : "");
    row.emplace_back(&one == chosen ? "<" : "");
    table.add_row(row);
  }
  table.drop_empty_columns();
  return table.text();
}

}  // namespace draftsmith::cli
