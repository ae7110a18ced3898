// The engine of model directories. It loads target and drafters once and decodes with Generator.
#include "evaluate/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/device_kernels.h"
#include "base/environment.h"
#include "base/signals.h"
#include "base/timing.h"
#include "evaluate/engine/suite_models.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/drafter.h"
#include "infer/forced/decisions.h"
#include "infer/generator.h"
#include "infer/loop/decode_loop.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "infer/self_drafting/methods.h"
#include "infer/windows/window_rules.h"
#include "model/cpu/instructions.h"

namespace draftsmith::evaluate {
namespace {

// Width of the widest step whose rounding is measured: decisions are computed again in one wide step.
constexpr int64_t kWidestStep = 64;

// Returns the place of a token in a distribution [V].
TokenMass mass_of(const at::Tensor& distribution, int64_t token) {
  const at::Tensor own = distribution[token];
  const at::Tensor ids = at::arange(distribution.numel());
  const at::Tensor before = distribution.gt(own) | (distribution.eq(own) & ids.lt(token));
  return {distribution.masked_select(before).sum().item<double>(), own.item<double>()};
}

class ModelEngine final : public Engine {
 public:
  explicit ModelEngine(const SuiteOptions& options)
      : options_(options), threads_(set_threads(options.threads)), models_(options) {}

  void check(const Setting& run, Problems& problems) override {
    if (!models_.require_alone(run.model, "run " + run.label, problems)) return;
    check_vocabulary(run.model, problems);
    try {
      make_generator(run, 1, false);
    } catch (const UserError& error) {
      problems.add_all(error.problems(), "run " + run.label + ", ");
    }
  }

  Prompt encode(const std::string& source, const TaskOptions& task, bool& cut) const override {
    Prompt prompt = lines_.prompt(source, task, cut);
    models_.require_room(std::ssize(prompt), task.max_new_tokens > 0 ? task.max_new_tokens : options_.max_new_tokens);
    return prompt;
  }

  std::vector<int64_t> encode_reference(const std::string& reference, const TaskOptions& task) const override {
    return lines_.output(reference, task);
  }

  std::vector<int64_t> encode_continuation(const std::string& source, const TaskOptions& task) const override {
    return lines_.rest(source, task);
  }

  std::string text(const std::vector<int64_t>& generated, bool ids) const override {
    return lines_.text(generated, ids);
  }

  std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) override {
    if (replays(run)) record_accepted(run, batch);
    infer::Generator& generator = generator_for(run, batch.max_new_tokens, batch.count);
    const at::Device device = models_.target().model->info().device;
    generator.carry_window(batch.window);
    std::optional<LongWork> timed;  // within it no progress is printed
    if (!batch.count) timed.emplace(kHowToGoOn);
    synchronize(device);
    const Stopwatch watch;
    auto results = generator.generate(batch.prompts, static_cast<uint64_t>(batch.first_line));
    synchronize(device);
    const double elapsed = watch.seconds();
    std::vector<LineRecord> records;
    const auto samples = static_cast<size_t>(run.decode.num_samples);
    for (size_t first = 0; first < results.size(); first += samples) {
      LineRecord record;
      for (size_t i = first; i < first + samples; ++i) add_sample(results[i], record);
      record.repetitions = {record.stats.seconds};
      if (record.failure) record.stats = {};
      record.ids = record.failure ? std::vector<int64_t>() : std::move(results[first].ids);
      record.window = generator.carried_window();
      records.push_back(std::move(record));
    }
    add_overhead(records, elapsed);
    return records;
  }

  std::vector<double> logit_gaps(const Setting& run, const TextStart& start, std::span<const int64_t> tokens) override {
    const std::vector<std::vector<int64_t>> outputs{start.tokens};
    const at::Tensor logits = infer::decision_logits(generator_for(run, start.max_new_tokens, false), models_.of(run),
                                                     {std::span(&start.prompt, 1), outputs});  // [1,V]
    const at::Tensor ids = infer::to_device(tokens, {std::ssize(tokens)}, at::kCPU);
    const at::Tensor gaps = (logits.max() - logits[0].index_select(0, ids)).contiguous();
    return {gaps.const_data_ptr<double>(), gaps.const_data_ptr<double>() + gaps.numel()};
  }

  double logit_rounding(const Setting& run, std::span<const Prompt> prompts,
                        const std::vector<std::vector<int64_t>>& outputs) override {
    const int64_t draft = std::max(run.decode.window.value_or(0), run.decode.longest_draft());
    const std::vector<int64_t> widths{2, 5, draft + 1, kWidestStep};
    return infer::logit_rounding(*models_.model(run.model).model, {prompts, outputs}, widths);
  }

  std::vector<TokenMass> first_token_masses(const Setting& run, std::span<const Prompt> prompts,
                                            const std::vector<std::vector<int64_t>>& tokens,
                                            int64_t max_new_tokens) override {
    const std::vector<std::vector<int64_t>> none(prompts.size());
    const at::Tensor p = infer::decision_probabilities(generator_for(run, max_new_tokens, false), models_.of(run),
                                                       {prompts, none});  // [B,V]
    std::vector<TokenMass> masses;
    for (size_t line = 0; line < tokens.size(); ++line) {
      for (const int64_t token : tokens[line]) masses.push_back(mass_of(p[static_cast<int64_t>(line)], token));
    }
    return masses;
  }

  infer::StepCosts step_costs(const Setting& run, const Prompt& prompt, const std::vector<int64_t>& output,
                              int64_t max_tokens) override {
    const infer::GenerationModels models = models_.of(run);
    infer::CalibrationContext context = middle_of(prompt, output);
    const model::LanguageModel* drafter = models.drafter->model();
    if (const int64_t positions = drafter != nullptr ? drafter->info().max_positions : 0; positions > 0) {
      const int64_t most = std::max<int64_t>(1, positions - max_tokens - 1);  // where it still drafts
      if (std::ssize(context.prefix) > most) context.prefix.resize(static_cast<size_t>(most));
      if (std::ssize(context.source) > positions) context.source.resize(static_cast<size_t>(positions));
    }
    return models.drafter->step_costs(models.draft_target(), context, max_tokens);
  }

  infer::ForcedAlpha forced_alpha(const Setting& run, std::span<const Prompt> prompts,
                                  const std::vector<std::vector<int64_t>>& outputs) override {
    const at::NoGradGuard no_gradients;
    const infer::GenerationModels models = models_.of(run);
    return models.drafter->forced_alpha(models.draft_target(), {prompts, outputs}, {.temperature = 1}, 0);
  }

  LayerDepth depth(const Setting& run) override {
    const infer::GenerationModels models = models_.of(run);
    const int64_t layers = models_.model(run.model).model->info().layers;
    if (run.algorithm() == infer::Algorithm::kPpd) return {layers, infer::ppd_settings(models, run.decode).early_layer};
    return {layers, models.drafter != nullptr ? models.drafter->inside_target() : 0};
  }

  std::optional<infer::DecodeWork> work(const Setting& run, std::span<const infer::DecodedLine> lines) override {
    const auto* target = dynamic_cast<const model::TransformerModel*>(models_.model(run.model).model.get());
    if (target == nullptr) return std::nullopt;  // several models in one
    infer::DecodingShapes shapes{.target = {&target->config(), weight_type(run.model)},
                                 .exit_layer = depth(run).early,
                                 .algorithm = run.algorithm(),
                                 .reads_each_layer = run.decode.exit_measure == "margin",
                                 .prompt_chunk = infer::prefill_chunk(target->info().device)};
    if (const auto drafter = models_.of(run).drafter; drafter != nullptr && drafter->transformer() != nullptr) {
      shapes.drafter = {&drafter->transformer()->config(), weight_type(run.drafter)};
    }
    const auto sources = static_cast<double>(lines.size());
    const int64_t batch = run.decode.batch_size.value_or(options_.batch_size);
    shapes.sources_together = sources / std::ceil(sources / static_cast<double>(batch));
    return infer::decode_work(shapes, lines);
  }

  void check(const MatchRateTable& rates, const std::string& where, Problems& problems) override {
    if (!models_.require_alone(rates.model, where, problems)) return;
    infer::check_match_rates(rates.options(), models_.model(rates.model).model->info(), where, problems);
    Problems found;
    check_vocabulary(rates.model, found);
    try {
      infer::check_layers(models_.with_exits(rates.model, rates.exits), "match rates", found);
    } catch (const UserError& error) {
      found.add_all(error.problems());
    }
    problems.add_all(found.list(), where + ", ");
  }

  std::vector<infer::MatchRate> match_rates(const MatchRateTable& rates, std::span<const Prompt> prompts,
                                            int64_t max_new_tokens) override {
    infer::MatchRateOptions options = rates.options();
    options.max_new_tokens = max_new_tokens;
    options.seed = options_.seed;
    return infer::match_rates(models_.with_exits(rates.model, rates.exits), prompts, options);
  }

  void check(const EngagementTable& table, const std::string& where, Problems& problems) override {
    infer::check_engagement(models_.of(engaged_setting(table)), where, problems);
  }

  infer::EngagedOutputs engage(const EngagementTable& table, const infer::EngagementQuestion& question,
                               std::span<const Prompt> prompts) override {
    return infer::engage(models_.of(engaged_setting(table)), question, prompts);
  }

  nlohmann::ordered_json description() const override {
    const auto& target = models_.target().model->info();
    nlohmann::ordered_json json{{"model", options_.model.string()}};
    for (const auto& drafter : options_.drafter) json["drafters"][drafter.name] = infer::to_text(drafter.spec());
    json["parameters"] = models_.parameters();
    json["dtype"] = options_.dtype;
    for (const auto& drafter : options_.drafter) {
      if (drafter.dtype) json["drafter_dtypes"][drafter.name] = *drafter.dtype;
    }
    json["device"] = device_description(target.device);
    json["threads"] = threads_;
    if (target.device.is_cuda()) json["execution"] = execution_json(device_execution());
    if (target.device.is_cpu()) json["instructions"] = model::to_string(model::cpu_instructions());
    return json;
  }

  std::string fingerprint() const override {
    nlohmann::ordered_json known = description();
    known.erase("execution");  // says also what this process has done so far
    return fmt::format("{} {}{}", git_commit(), known.dump(), models_.fingerprint());
  }

 private:
  // Requires the target's vocabulary of a drafter that decodes alone, since it reads the target's ids.
  void check_vocabulary(const std::string& model, Problems& problems) const {
    if (model == kTargetName) return;
    const infer::LoadedModel& target = models_.target();
    const infer::LoadedModel& alone = models_.model(model);
    infer::compare_vocabularies(target.model->info(), alone.model->info(), target.tokenizer.get(),
                                alone.tokenizer.get(), problems);
  }

  // Returns whether the setting's window rule replays an earlier pass.
  static bool replays(const Setting& setting) {
    return setting.decode.drafts() && infer::window_traits(setting.decode).replays;
  }

  // Returns the type of a model's weights.
  c10::ScalarType weight_type(const std::string& name) const {
    for (const auto& drafter : options_.drafter) {
      if (drafter.name == name && drafter.dtype) return parse_dtype(*drafter.dtype, "drafter.dtype");
    }
    return parse_dtype(options_.dtype, "dtype");
  }

  // Returns a setting with the models of an engagement curve.
  static Setting engaged_setting(const EngagementTable& table) {
    Setting setting;
    setting.drafter = table.drafter;
    return setting;
  }

  static void add_sample(const infer::GenerationResult& sample, LineRecord& record) {
    record.stats += sample.stats;
    if (sample.error && !record.failure) record.failure = sample.error->what;
    if (!sample.ids.empty()) record.first_tokens.push_back(sample.ids.front());
  }

  // Records the pass that the window oracle replays: untimed, with the longest windows, once for each batch. Where
  // a line fails here, the replay writes the rest without drafts.
  void record_accepted(const Setting& run, const DecodeBatch& batch) {
    const std::vector<Prompt> prompts(batch.prompts.begin(), batch.prompts.end());
    if (!recorded_.insert({run.label, batch.max_new_tokens, prompts}).second) return;
    infer::DecodeOptions decode = decode_options(run, batch.max_new_tokens);
    const infer::GenerationModels models = models_.of(run);
    infer::DraftParts parts{models.drafter->make(models.draft_target()),
                            std::make_unique<infer::RecordingWindow>(decode.longest_draft(), accepted_[run.label]),
                            infer::make_acceptance_rule(decode)};
    decode.window_rule = "fixed";
    infer::Generator recorder(models, decode, std::move(parts));
    recorder.generate(batch.prompts, static_cast<uint64_t>(batch.first_line));
  }

  infer::DecodeOptions decode_options(const Setting& run, int64_t max_new_tokens) const {
    infer::DecodeOptions decode = run.decode;
    decode.max_new_tokens = max_new_tokens;
    if (!decode.batch_size) decode.batch_size = options_.batch_size;
    decode.seed = options_.seed + (run.repeats.empty() ? 0 : 1);
    return decode;
  }

  infer::Generator make_generator(const Setting& run, int64_t max_new_tokens, bool count) {
    infer::DecodeOptions decode = decode_options(run, max_new_tokens);
    decode.measure_alpha = count;
    infer::GenerationModels models = models_.of(run);
    if (replays(run)) models.accepted_lengths = &accepted_[run.label];
    return {models, decode};
  }

  infer::Generator& generator_for(const Setting& run, int64_t max_new_tokens, bool count) {
    const auto key = std::make_tuple(run.label, max_new_tokens, count);
    const auto found = generators_.find(key);
    if (found != generators_.end()) return found->second;
    return generators_.emplace(key, make_generator(run, max_new_tokens, count)).first->second;
  }

  // Returns the context in which steps are timed: half of the output after the prompt.
  infer::CalibrationContext middle_of(const Prompt& prompt, const std::vector<int64_t>& output) const {
    const auto& info = models_.target().model->info();
    infer::CalibrationContext context{prompt, info.encoder_decoder ? Prompt{info.decoder_start} : prompt};
    context.prefix.insert(context.prefix.end(), output.begin(),
                          output.begin() + static_cast<std::ptrdiff_t>(output.size() / 2));
    return context;
  }

  SuiteOptions options_;
  int64_t threads_ = 0;
  SuiteModels models_;
  LineCoder lines_{models_.target()};
  std::map<std::string, infer::AcceptedLengths> accepted_;                    // by label, for the window oracle
  std::set<std::tuple<std::string, int64_t, std::vector<Prompt>>> recorded_;  // label, max_new_tokens, batch
  std::map<std::tuple<std::string, int64_t, bool>, infer::Generator> generators_;
};

}  // namespace

std::unique_ptr<Engine> make_model_engine(const SuiteOptions& options) {
  return std::make_unique<ModelEngine>(options);
}

}  // namespace draftsmith::evaluate
