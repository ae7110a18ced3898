// The evaluation engine of model directories: loads target and drafters once and decodes through Generator.

#include <algorithm>
#include <map>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/timing.h"
#include "data/ngram_table.h"
#include "data/token_ids.h"
#include "data/tokenizer.h"
#include "infer/drafters/make_drafter.h"
#include "infer/evaluation.h"
#include "infer/evaluation_calibration.h"
#include "infer/forced_alpha.h"
#include "infer/generator.h"
#include "infer/teacher_forcing.h"
#include "infer/vocabulary.h"
#include "model/checkpoint.h"
#include "model/parameters.h"

namespace draftsmith::infer {
namespace {

namespace fs = std::filesystem;

// A model with its directory's tokenizer (absent: only ids can be given to it) and generation settings; or, for a
// drafter that is no model, what that is.
struct LoadedModel {
  fs::path directory;  // or the n-gram table
  std::unique_ptr<data::NgramTable> ngrams;
  int64_t lookup = 0;
  std::unique_ptr<model::TransformerModel> model;
  std::unique_ptr<data::Tokenizer> tokenizer;
  model::GenerationConfig generation;
};

LoadedModel load(const fs::path& directory, const model::LoadOptions& options) {
  LoadedModel loaded;
  loaded.directory = directory;
  loaded.model = model::load_model(directory, options);
  loaded.generation = model::load_generation_config(directory);
  if (data::has_tokenizer(directory)) {
    loaded.tokenizer = data::load_tokenizer(directory);
    model::require_vocabulary_fits(loaded.model->config(), loaded.tokenizer->vocabulary(), directory.string());
  }
  return loaded;
}

LoadedModel load_drafter(const DrafterSource& source, const model::LoadOptions& options) {
  if (!source.model.empty()) return load(source.model, options);
  LoadedModel loaded;
  loaded.directory = source.ngram;
  loaded.lookup = source.lookup;
  if (!source.ngram.empty()) loaded.ngrams = std::make_unique<data::NgramTable>(source.ngram);
  return loaded;
}

// Names, sizes and times of a directory's files, or of a file: cheap to read, different when the model is another one.
std::string fingerprint_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  const auto add = [&](const fs::directory_entry& entry) {
    if (!entry.is_regular_file()) return;
    files[entry.path().filename()] =
        fmt::format("{}:{}", entry.file_size(), entry.last_write_time().time_since_epoch().count());
  };
  add(fs::directory_entry(directory));
  if (fs::is_directory(directory)) {
    for (const auto& entry : fs::directory_iterator(directory)) add(entry);
  }
  return fmt::format("{} {}", directory.string(), files);
}

class ModelEngine final : public EvaluationEngine {
 public:
  explicit ModelEngine(const EvaluationOptions& options) : options_(options) {
    threads_ = set_threads(options.threads);
    const model::LoadOptions load_options{.device = choose_device(options.device, "device"),
                                          .dtype = parse_dtype(options.dtype, "dtype")};
    models_["target"] = load(options.model, load_options);
    for (const auto& drafter : options.drafter) {
      models_[drafter.name] = load_drafter(drafter.source(), load_options);
    }
  }

  void check(const RunSettings& run, Problems& problems) const override {
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
    const auto& info = models_.at("target").model->info();
    Prompt prompt;
    Prompt end;  // what is kept when the prompt is cut
    if (task.ids) {
      prompt = data::parse_token_ids(source, info.vocabulary, "",
                                     "ids = true needs ids made with the model's own tokenizer");
      if (!prompt.empty() && is_eos(prompt.back())) {
        end.push_back(prompt.back());
        prompt.pop_back();
      }
    } else {
      if (!info.encoder_decoder) append(tokenizer().frame().before, prompt);
      append(tokenizer().encode(source), prompt);
      if (!task.suffix.empty()) append(tokenizer().encode(task.suffix), end);
      if (info.encoder_decoder) end.push_back(tokenizer().eos());
    }
    const auto room = task.max_source_tokens - std::ssize(end);
    if (task.max_source_tokens > 0 && room < 1) {
      throw UserError({.where = "",
                       .what = "max_source_tokens leaves no room for the source",
                       .expected = fmt::format("more than {} tokens: its suffix and EOS", end.size()),
                       .found = fmt::format("{}", task.max_source_tokens),
                       .hint = ""});
    }
    cut = task.max_source_tokens > 0 && std::ssize(prompt) > room;
    if (cut) prompt.resize(static_cast<size_t>(room));
    append(end, prompt);
    require_room(std::ssize(prompt), task.max_new_tokens > 0 ? task.max_new_tokens : options_.max_new_tokens);
    return prompt;
  }

  std::string text(const std::vector<int64_t>& generated, bool ids) const override {
    if (!ids) return text_of_known(tokenizer(), generated);
    auto shown = generated;
    if (!shown.empty() && is_eos(shown.back())) shown.pop_back();
    return fmt::format("{}", fmt::join(shown, " "));
  }

  std::vector<LineRecord> decode(const RunSettings& run, const DecodeBatch& batch) override {
    Generator& generator = generator_for(run, batch.max_new_tokens, batch.count);
    const at::Device device = models_.at("target").model->info().device;
    synchronize(device);
    const Stopwatch watch;
    auto results = generator.generate(batch.prompts, static_cast<uint64_t>(batch.first_line));
    synchronize(device);
    const double elapsed = watch.seconds();
    std::vector<LineRecord> records;
    for (auto& result : results) {
      LineRecord record;
      record.ids = std::move(result.ids);
      record.repetitions = {result.stats.seconds};
      record.stats = std::move(result.stats);
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
    const ForcedAlpha sampled =
        other.model ? alpha_forced({target, *other.model}, prompts, outputs, warping)
                    : alpha_forced(target, *make_drafter(drafting_models(drafter)), prompts, outputs, warping);
    return {sampled.agreement, sampled.alpha, sampled.positions};
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
    return text;
  }

 private:
  template <class Ids>
  static void append(const Ids& ids, Prompt& prompt) {
    prompt.insert(prompt.end(), ids.begin(), ids.end());
  }

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

  bool is_eos(int64_t id) const {
    const auto& eos = models_.at("target").model->info().eos;
    return std::find(eos.begin(), eos.end(), id) != eos.end();
  }

  const data::Tokenizer& tokenizer() const {
    const LoadedModel& target = models_.at("target");
    if (target.tokenizer) return *target.tokenizer;
    throw UserError({.where = target.directory.string(),
                     .what = "the model has no tokenizer, so it cannot read text",
                     .expected = "spiece.model, tokenizer.model or tokenizer.json",
                     .found = "neither",
                     .hint = "tasks with ids = true need none"});
  }

  // The target, or the model that decodes in its place, with a drafter or none ("").
  GenerationModels drafting_models(const std::string& drafter, const std::string& target = "target") const {
    const LoadedModel& model = models_.at(target);
    GenerationModels models;
    models.target = model.model.get();
    models.generation = model.generation;
    models.target_tokenizer = model.tokenizer.get();
    if (drafter.empty()) return models;
    const LoadedModel& loaded = models_.at(drafter);
    models.drafter = loaded.model.get();
    models.drafter_tokenizer = loaded.tokenizer.get();
    models.ngrams = loaded.ngrams.get();
    models.lookup = loaded.lookup;
    return models;
  }

  Generator make_generator(const RunSettings& run, int64_t max_new_tokens, bool count) const {
    DecodeOptions decode = run.decode;
    decode.max_new_tokens = max_new_tokens;
    decode.batch_size = options_.batch_size;
    decode.seed = options_.seed;
    decode.measure_alpha = count;
    return {drafting_models(run.drafter, run.model), decode};
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
  std::map<std::tuple<std::string, int64_t, bool>, Generator> generators_;
};

}  // namespace

std::unique_ptr<EvaluationEngine> make_model_engine(const EvaluationOptions& options) {
  return std::make_unique<ModelEngine>(options);
}

}  // namespace draftsmith::infer
