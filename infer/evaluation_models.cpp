// The evaluation engine of model directories: loads target and drafters once and decodes through Generator.

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/timing.h"
#include "infer/drafters/make_drafter.h"
#include "infer/evaluation.h"
#include "infer/evaluation_calibration.h"
#include "infer/evaluation_loading.h"
#include "infer/evaluation_prompts.h"
#include "infer/forced_alpha.h"
#include "infer/generator.h"
#include "infer/parts.h"
#include "infer/teacher_forcing.h"
#include "infer/vocabulary.h"
#include "infer/windows/accepted_lengths.h"
#include "model/parameters.h"
#include "model/router.h"

namespace draftsmith::infer {
namespace {

namespace fs = std::filesystem;

class ModelEngine final : public EvaluationEngine {
 public:
  explicit ModelEngine(const EvaluationOptions& options) : options_(options) {
    threads_ = set_threads(options.threads);
    const model::LoadOptions load_options{.device = choose_device(options.device, "device"),
                                          .dtype = parse_dtype(options.dtype, "dtype")};
    models_["target"] = load_evaluated(options.model, load_options);
    for (const auto& drafter : options.drafter) {
      models_[drafter.name] = load_drafter(drafter.source(), options.model, load_options);
    }
  }

  void check(const RunSettings& run, Problems& problems) override {
    if (run.model != "target") {
      // A drafter that decodes alone is given the target's ids.
      const LoadedModel& target = models_.at("target");
      const LoadedModel& alone = models_.at(run.model);
      compare_vocabularies(target.model->info(), alone.model->info(), target.tokenizer.get(), alone.tokenizer.get(),
                           problems);
    }
    try {
      make_generator(run, 1, false);
    } catch (const UserError& error) {
      for (Problem problem : error.problems()) {
        problem.where = "run " + run.label + (problem.where.empty() ? "" : ", " + problem.where);
        problems.add(std::move(problem));
      }
    }
  }

  Prompt encode(const std::string& source, const EvaluationTask& task, bool& cut) const override {
    Prompt prompt = encode_prompt(models_.at("target"), source, task, cut);
    require_room(std::ssize(prompt), task.max_new_tokens > 0 ? task.max_new_tokens : options_.max_new_tokens);
    return prompt;
  }

  std::vector<int64_t> encode_reference(const std::string& reference, const EvaluationTask& task) const override {
    return encode_output(models_.at("target"), reference, task);
  }

  std::vector<int64_t> encode_continuation(const std::string& source, const EvaluationTask& task) const override {
    return encode_rest(models_.at("target"), source, task);
  }

  std::string text(const std::vector<int64_t>& generated, bool ids) const override {
    return output_text(models_.at("target"), generated, ids);
  }

  std::vector<LineRecord> decode(const RunSettings& run, const DecodeBatch& batch) override {
    if (run.decode.window_rule_name() == "oracle") record_accepted(run, batch);
    Generator& generator = generator_for(run, batch.max_new_tokens, batch.count);
    const at::Device device = models_.at("target").model->info().device;
    synchronize(device);
    const Stopwatch watch;
    auto results = generator.generate(batch.prompts, static_cast<uint64_t>(batch.first_line));
    synchronize(device);
    const double elapsed = watch.seconds();
    std::vector<LineRecord> records;
    const auto samples = static_cast<size_t>(run.decode.num_samples);
    for (size_t first = 0; first < results.size(); first += samples) {
      LineRecord record;
      record.ids = std::move(results[first].ids);
      for (size_t i = 0; i < samples; ++i) record.stats += results[first + i].stats;
      record.repetitions = {record.stats.seconds};
      record.prefill_runs = models_.at(run.model).model->info().encoder_decoder ? 0 : 1;
      records.push_back(std::move(record));
    }
    add_overhead(records, elapsed);
    return records;
  }

  double top_two_margin(const Prompt& prompt, const std::vector<int64_t>& prefix) override {
    const at::NoGradGuard no_gradients;
    std::vector<std::vector<int64_t>> outputs{prefix};
    outputs[0].push_back(0);  // logits are those before the last token, whatever it is
    TeacherForcing forcing(*models_.at("target").model, {std::span(&prompt, 1), outputs});
    const at::Tensor logits = forcing.next(forcing.longest()).select(1, -1).flatten();  // [V]
    const at::Tensor top = std::get<0>(logits.to(at::kCPU, at::kDouble).topk(2));
    return top[0].item<double>() - top[1].item<double>();
  }

  StepCosts step_costs(const std::string& drafter, const Prompt& prompt, const std::vector<int64_t>& output,
                       int64_t max_tokens) override {
    const std::vector<int64_t> half(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(output.size() / 2));
    const CalibrationContext calibration{prompt, context(prompt, half)};
    model::LanguageModel& target = *models_.at("target").model;
    if (models_.at(drafter).tandem) {
      return measure_tandem_costs(target, *models_.at(drafter).model, calibration, max_tokens);
    }
    if (models_.at(drafter).model) {
      return measure_step_costs(target, *models_.at(drafter).model, calibration, max_tokens);
    }
    return measure_step_costs(target, *make_drafter(drafting_models(drafter)), calibration, max_tokens);
  }

  ForcedAlphas forced_alpha(const std::string& drafter, std::span<const Prompt> prompts,
                            const std::vector<std::vector<int64_t>>& outputs) override {
    const at::NoGradGuard no_gradients;
    model::LanguageModel& target = *models_.at("target").model;
    const LoadedModel& other = models_.at(drafter);
    const Warping warping{.temperature = 1};
    const auto measure = [&] {
      if (other.tandem) {
        return alpha_forced_tandem(target, *other.model, {prompts, outputs}, warping, options_.forced_block);
      }
      if (other.model) return alpha_forced({target, *other.model}, prompts, outputs, warping);
      return alpha_forced(target, *make_drafter(drafting_models(drafter)), prompts, outputs, warping);
    };
    const ForcedAlpha sampled = measure();
    return {sampled.agreement, sampled.alpha, sampled.positions, sampled.target, sampled.drafter};
  }

  nlohmann::ordered_json description() const override {
    const auto& target = models_.at("target").model->info();
    nlohmann::ordered_json json{{"model", options_.model.string()}};
    for (const auto& drafter : options_.drafter) json["drafters"][drafter.name] = drafter.source().text();
    for (const auto& [name, loaded] : models_) {
      if (loaded.model) json["parameters"][name] = model::count_numbers(loaded.model->config());
    }
    json["dtype"] = options_.dtype;
    json["device"] = device_description(target.device);
    json["threads"] = threads_;
    return json;
  }

  std::string fingerprint() const override {
    std::string text = fmt::format("{} {} {}", git_commit(), options_.device, threads_);
    for (const auto& [name, loaded] : models_) text += "; " + name + " " + fingerprint_of(loaded.directory);
    for (const auto& entry : routers_) text += "; " + fingerprint_of(entry.first.first);
    return text;
  }

 private:
  // Methods are compared on equal outputs, so these must fit into the context of every model of the suite.
  void require_room(int64_t prompt, int64_t new_tokens) const {
    if (models_.at("target").model->info().encoder_decoder) return;
    for (const auto& [name, loaded] : models_) {
      const int64_t context = loaded.model ? loaded.model->info().max_positions : 0;
      if (context == 0 || prompt + new_tokens <= context) continue;
      throw UserError({.where = "",
                       .what = "the prompt and the new tokens don't fit into the context of " + name,
                       .expected = fmt::format("at most {} prompt tokens, with max_new_tokens = {}",
                                               std::max<int64_t>(0, context - new_tokens), new_tokens),
                       .found = fmt::format("{} prompt tokens", prompt),
                       .hint = "set the task's max_source_tokens, which cuts prompts, or lower max_new_tokens"});
    }
  }

  // The target, or the model that decodes in its place, with a drafter or none ("").
  GenerationModels drafting_models(const std::string& drafter, const std::string& target = "target") const {
    const LoadedModel& model = models_.at(target);
    GenerationModels models;
    models.target = model.model.get();
    models.generation = model.generation;
    models.target_tokenizer = model.tokenizer.get();
    if (drafter.empty()) return models;
    set_drafter(models_.at(drafter), models);
    return models;
  }

  // The router of a run, bound to the run's drafter; null for runs without one.
  const model::RouterPredictor* router_of(const RunSettings& run) {
    if (run.decode.router.empty()) return nullptr;
    const auto key = std::pair(run.decode.router, run.drafter);
    const auto found = routers_.find(key);
    if (found != routers_.end()) return &found->second;
    const model::Router router = model::load_router(run.decode.router);
    const LoadedModel& drafter = models_.at(run.drafter);
    if (!drafter.model) {
      throw UserError({"run.router", "a router is for drafters that are models", "a model or a Tandem secondary",
                       "drafter " + run.drafter, "use the window fixed"});
    }
    model::require_router_fits(router, run.decode.router, {drafter.directory, *drafter.model});
    return &routers_.try_emplace(key, router, *drafter.model).first->second;
  }

  // What the window oracle replays: a pass with windows as long as may be, outside of all timing, once for each prompt.
  void record_accepted(const RunSettings& run, const DecodeBatch& batch) {
    const std::vector<Prompt> prompts(batch.prompts.begin(), batch.prompts.end());
    if (!recorded_.insert({run.label, batch.max_new_tokens, prompts}).second) return;
    DecodeOptions decode = decode_options(run, batch.max_new_tokens);
    const GenerationModels models = drafting_models(run.drafter, run.model);
    DraftParts parts{make_drafter(models),
                     std::make_unique<RecordingWindow>(decode.longest_draft(), accepted_[run.label]),
                     make_acceptance_rule(decode.acceptance_name(), decode)};
    decode.window_rule = "fixed";
    Generator(models, decode, std::move(parts)).generate(batch.prompts, static_cast<uint64_t>(batch.first_line));
  }

  DecodeOptions decode_options(const RunSettings& run, int64_t max_new_tokens) const {
    DecodeOptions decode = run.decode;
    decode.max_new_tokens = max_new_tokens;
    decode.batch_size = options_.batch_size;
    decode.seed = options_.seed;
    return decode;
  }

  Generator make_generator(const RunSettings& run, int64_t max_new_tokens, bool count) {
    DecodeOptions decode = decode_options(run, max_new_tokens);
    decode.measure_alpha = count;
    GenerationModels models = drafting_models(run.drafter, run.model);
    models.router = router_of(run);
    if (decode.window_rule_name() == "oracle") models.accepted_lengths = &accepted_[run.label];
    return {models, decode};
  }

  Generator& generator_for(const RunSettings& run, int64_t max_new_tokens, bool count) {
    const auto key = std::make_tuple(run.label, max_new_tokens, count);
    const auto found = generators_.find(key);
    if (found != generators_.end()) return found->second;
    return generators_.emplace(key, make_generator(run, max_new_tokens, count)).first->second;
  }

  // What the decoder has been given before the next token: start token or prompt, then new tokens.
  std::vector<int64_t> context(const Prompt& prompt, const std::vector<int64_t>& tokens) const {
    const auto& info = models_.at("target").model->info();
    std::vector<int64_t> result = info.encoder_decoder ? Prompt{info.decoder_start} : prompt;
    result.insert(result.end(), tokens.begin(), tokens.end());
    return result;
  }

  EvaluationOptions options_;
  int64_t threads_ = 0;
  std::map<std::string, LoadedModel> models_;
  std::map<std::pair<fs::path, std::string>, model::RouterPredictor> routers_;  // by directory and drafter
  std::map<std::string, AcceptedLengths> accepted_;                             // by label, of the window oracle
  std::set<std::tuple<std::string, int64_t, std::vector<Prompt>>> recorded_;    // label, max_new_tokens, batch
  std::map<std::tuple<std::string, int64_t, bool>, Generator> generators_;
};

}  // namespace

std::unique_ptr<EvaluationEngine> make_model_engine(const EvaluationOptions& options) {
  return std::make_unique<ModelEngine>(options);
}

}  // namespace draftsmith::infer
