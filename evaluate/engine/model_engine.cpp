// Evaluation engine of model directories. It loads target and drafters once and decodes with Generator.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/device_kernels.h"
#include "base/environment.h"
#include "base/timing.h"
#include "data/chat/chat_template.h"
#include "data/chat/chat_tokens.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/engine/engine.h"
#include "evaluate/evaluation.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/drafter.h"
#include "infer/drafters/early_exit_drafter.h"
#include "infer/drafters/model_drafter.h"
#include "infer/forced/decisions.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/load_models.h"
#include "infer/loop/prefill.h"
#include "infer/loop/processors.h"
#include "infer/parts.h"
#include "infer/prompts.h"
#include "infer/routers.h"
#include "infer/self_drafting/methods.h"
#include "infer/windows/window_rules.h"
#include "model/models/language_models.h"
#include "model/models/router.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

// Adds the found problems with `where` before their own places.
void add_at(const std::string& where, const std::vector<Problem>& found, Problems& problems) {
  for (Problem problem : found) {
    problem.where = where + (where.empty() || problem.where.empty() ? "" : ", ") + problem.where;
    problems.add(std::move(problem));
  }
}

// Width of the widest step whose rounding is measured: decisions are computed again in one wide step.
constexpr int64_t kWidestStep = 64;

// Returns the place of a token in a distribution [V].
TokenMass mass_of(const at::Tensor& distribution, int64_t token) {
  const at::Tensor own = distribution[token];
  const at::Tensor ids = at::arange(distribution.numel());
  const at::Tensor before = distribution.gt(own) | (distribution.eq(own) & ids.lt(token));
  return {distribution.masked_select(before).sum().item<double>(), own.item<double>()};
}

constexpr const char* kOwnIds = "ids = true needs ids made with the model's own tokenizer";

template <class Ids>
void append(const Ids& ids, Prompt& prompt) {
  prompt.insert(prompt.end(), ids.begin(), ids.end());
}

bool is_eos(const infer::LoadedModel& target, int64_t id) {
  const auto& eos = target.model->info().eos;
  return std::find(eos.begin(), eos.end(), id) != eos.end();
}

const data::Tokenizer& tokenizer_of(const infer::LoadedModel& target) {
  if (target.tokenizer) return *target.tokenizer;
  throw UserError({.where = target.directory.string(),
                   .what = "the model has no tokenizer, so it cannot read text",
                   .expected = "spiece.model, tokenizer.model or tokenizer.json",
                   .found = "none of them",
                   .hint = "tasks with ids = true need none"});
}

// Coder of task lines with the target's tokenizer. It reads the chat template once, when a task asks for it. Refers to
// the target.
class LineCoder {
 public:
  explicit LineCoder(const infer::LoadedModel& target) : target_(target) {}

  // Returns the ids of a source line, like Engine::encode(), but does not check the room in the context.
  Prompt prompt(const std::string& source, const TaskOptions& task, bool& cut) const {
    auto [prompt, end] = whole(source, task);
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
    return prompt;
  }

  std::vector<int64_t> rest(const std::string& source, const TaskOptions& task) const {
    if (target_.model->info().encoder_decoder || task.max_source_tokens == 0) return {};
    auto [text, end] = whole(source, task);
    if (!end.empty() || std::ssize(text) <= task.max_source_tokens) return {};
    text.erase(text.begin(), text.begin() + task.max_source_tokens);
    if (!task.ids) text.push_back(tokenizer_of(target_).eos());
    return text;
  }

  std::vector<int64_t> output(const std::string& reference, const TaskOptions& task) const {
    std::vector<int64_t> ids;
    if (!task.ids) {
      const data::Tokenizer& tokenizer = tokenizer_of(target_);
      append(tokenizer.encode(reference), ids);
      ids.push_back(tokenizer.eos());
      return ids;
    }
    ids = data::parse_token_ids(reference, target_.model->info().vocabulary, "", kOwnIds);
    if (!ids.empty() && is_eos(target_, ids.back())) return ids;
    const auto& eos = target_.generation.eos_ids;
    if (!eos.empty()) ids.push_back(eos.front());
    return ids;
  }

  std::string text(const std::vector<int64_t>& generated, bool ids) const {
    if (!ids) return infer::text_of_known(tokenizer_of(target_), generated);
    auto shown = generated;
    if (!shown.empty() && is_eos(target_, shown.back())) shown.pop_back();
    return fmt::format("{}", fmt::join(shown, " "));
  }

 private:
  // Source before it is cut, and the end that a cut keeps: suffix and EOS.
  struct Whole {
    Prompt text;
    Prompt end;
  };

  Whole whole(const std::string& source, const TaskOptions& task) const {
    const auto& info = target_.model->info();
    Whole whole;
    if (task.ids) {
      whole.text = data::parse_token_ids(source, info.vocabulary, "", kOwnIds);
      if (!whole.text.empty() && is_eos(target_, whole.text.back())) {
        whole.end.push_back(whole.text.back());
        whole.text.pop_back();
      }
      return whole;
    }
    const data::Tokenizer& tokenizer = tokenizer_of(target_);
    if (task.chat || !task.messages.empty()) {
      append(data::encode_chat(tokenizer, chat().render(nlohmann::ordered_json::parse(source), true)), whole.text);
    } else {
      if (!info.encoder_decoder) append(tokenizer.frame().before, whole.text);
      append(tokenizer.encode(source), whole.text);
    }
    if (!task.suffix.empty()) append(tokenizer.encode(task.suffix), whole.end);
    if (info.encoder_decoder) whole.end.push_back(tokenizer.eos());
    return whole;
  }

  data::ChatTemplate& chat() const {
    if (!chat_) chat_ = data::load_chat_template(target_.directory);
    return *chat_;
  }

  const infer::LoadedModel& target_;
  mutable std::optional<data::ChatTemplate> chat_;
};

// Models and drafters by the names that settings use, loaded once, with their exits and routers.
class SuiteModels {
 public:
  // Loads target and drafters. Errors: UserError (load_drafter()).
  explicit SuiteModels(const SuiteOptions& options) {
    const model::LoadOptions load{.device = choose_device(options.device, "device"),
                                  .dtype = parse_weight_type(options.dtype, "dtype")};
    loaded_[kTargetName] = infer::load_model_drafter(options.model, load);
    for (const auto& drafter : options.drafter) {
      model::LoadOptions own = load;
      if (drafter.dtype) own.dtype = parse_weight_type(*drafter.dtype, "drafter.dtype");
      loaded_[drafter.name] = infer::load_drafter(drafter.spec(), options.model, own);
    }
  }

  // Returns a model that decodes: the target, or a drafter that can decode alone (require_alone). The name must exist.
  const infer::LoadedModel& model(const std::string& name) const { return *loaded_.at(name)->standalone(); }
  const infer::LoadedModel& target() const { return model(kTargetName); }

  // Reports a problem at `where` for a drafter that cannot decode alone. Returns whether all is well.
  bool require_alone(const std::string& name, const std::string& where, Problems& problems) const {
    if (loaded_.at(name)->standalone() != nullptr) return true;
    problems.add({where, "the drafter " + name + " has no encoder of its own, so it does not decode alone",
                  "the target, or a drafter that is an ordinary model", loaded_.at(name)->name(),
                  "its training stage measures it alone: validation.bleu_examples"});
    return false;
  }

  // Returns the model of that name with its exits, or with the exits in directory `given`. Loads exits on first use.
  // Errors: UserError (find_exits()).
  infer::GenerationModels with_exits(const std::string& name, const fs::path& given) {
    infer::GenerationModels models = without_exits(name);
    models.exits = exits_of(name, given);
    return models;
  }

  // Returns the setting's model, drafter and router. Exits are included if the setting reads the model's layers early.
  // Errors: UserError (find_exits()), and for a router of another drafter.
  infer::GenerationModels of(const Setting& run) {
    const infer::SharedDrafter drafter = run.drafter.empty() ? nullptr : loaded_.at(run.drafter);
    const bool reads_exits = run.inside() || (drafter != nullptr && drafter->inside_target() > 0);
    infer::GenerationModels models = reads_exits ? with_exits(run.model, run.decode.exits) : without_exits(run.model);
    models.drafter = drafter;
    if (run.decode.drafts_inside()) {
      models.drafter = infer::exit_drafter(infer::exit_layer_of(run.decode, models.exits));
    }
    models.router = router_of(run);
    return models;
  }

  // Requires that the prompt and the new tokens fit into the context of every model, and that every model predicts what
  // follows the prompt, since methods are compared on equal outputs. Errors: UserError with an empty `where`.
  void require_room(int64_t prompt, int64_t new_tokens) const {
    if (target().model->info().encoder_decoder) return;
    for (const auto& [name, loaded] : loaded_) {
      if (loaded->model() != nullptr) infer::require_length(*loaded->model(), prompt, "");
      const int64_t context = loaded->model() != nullptr ? loaded->model()->info().max_positions : 0;
      if (context == 0 || prompt + new_tokens <= context) continue;
      throw UserError({.where = "",
                       .what = "the prompt and the new tokens don't fit into the context of " + name,
                       .expected = fmt::format("at most {} prompt tokens, with max_new_tokens = {}",
                                               std::max<int64_t>(0, context - new_tokens), new_tokens),
                       .found = fmt::format("{} prompt tokens", prompt),
                       .hint = "set the task's max_source_tokens, which cuts prompts, or lower max_new_tokens"});
    }
  }

  // Returns the number of parameters of each model by its name.
  nlohmann::ordered_json parameters() const {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (const auto& [name, loaded] : loaded_) {
      if (loaded->model() != nullptr) json[name] = model::count_numbers(*loaded->model());
    }
    return json;
  }

  // Returns a text with the sizes and times of all files loaded so far.
  std::string fingerprint() const {
    std::string text;
    for (const auto& [name, loaded] : loaded_) text += "; " + name + " " + infer::fingerprint_of(loaded->path());
    for (const auto& entry : routers_) text += "; " + infer::fingerprint_of(entry.first.first);
    for (const auto& [key, exits] : exits_) {
      const auto& [name, given] = key;
      if (exits)
        text += "; " + infer::fingerprint_of(given.empty() ? model::exits_directory(model(name).directory) : given);
    }
    return text;
  }

 private:
  infer::GenerationModels without_exits(const std::string& name) const {
    const infer::LoadedModel& loaded = model(name);
    infer::GenerationModels models;
    models.target = loaded.model.get();
    models.generation = loaded.generation;
    models.target_tokenizer = loaded.tokenizer.get();
    return models;
  }

  const model::Exits* exits_of(const std::string& name, const fs::path& given) {
    const auto key = std::pair(name, given);
    const auto found = exits_.find(key);
    if (found != exits_.end()) return found->second.get();
    const infer::LoadedModel& loaded = model(name);
    return exits_.emplace(key, infer::find_exits(loaded.directory, *loaded.model, given)).first->second.get();
  }

  // Returns the router, bound to the setting's drafter, or null for a setting without one.
  const model::RouterPredictor* router_of(const Setting& run) {
    if (run.decode.router.empty() || run.drafter.empty()) return nullptr;
    const auto key = std::pair(run.decode.router, run.drafter);
    const auto found = routers_.find(key);
    if (found != routers_.end()) return found->second.get();
    auto router = infer::load_router(run.decode.router, loaded_.at(run.drafter).get(), "run.router", run.drafter);
    return routers_.try_emplace(key, std::move(router)).first->second.get();
  }

  std::map<std::string, infer::SharedDrafter> loaded_;                               // by name; includes the target
  std::map<std::pair<std::string, fs::path>, std::unique_ptr<model::Exits>> exits_;  // null: no exits
  // By directory and drafter.
  std::map<std::pair<fs::path, std::string>, std::unique_ptr<model::RouterPredictor>> routers_;
};

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
      add_at("run " + run.label, error.problems(), problems);
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
    return models.drafter->step_costs(models.draft_target(), middle_of(prompt, output), max_tokens);
  }

  infer::ForcedAlpha forced_alpha(const Setting& run, std::span<const Prompt> prompts,
                                  const std::vector<std::vector<int64_t>>& outputs) override {
    const at::NoGradGuard no_gradients;
    const infer::GenerationModels models = models_.of(run);
    return models.drafter->forced_alpha(models.draft_target(), {prompts, outputs}, {.temperature = 1},
                                        options_.forced_block);
  }

  LayerDepth depth(const Setting& run) override {
    const infer::GenerationModels models = models_.of(run);
    const int64_t layers = models_.model(run.model).model->info().layers;
    if (run.algorithm() == infer::Algorithm::kPpd) return {layers, infer::ppd_settings(models, run.decode).early_layer};
    return {layers, models.drafter != nullptr ? models.drafter->inside_target() : 0};
  }

  std::optional<infer::DecodeWork> work(const Setting& run, std::span<const infer::DecodedLine> lines) override {
    if (!infer::counts_work(run.algorithm())) return std::nullopt;
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
      add_at("", error.problems(), found);
    }
    add_at(where, found.list(), problems);
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

  std::vector<infer::TracedToken> trace(const Setting& run, const Prompt& prompt, int64_t line,
                                        int64_t max_new_tokens) override {
    if (replays(run)) return {};  // its windows are those of a recorded batch
    const auto first_line = static_cast<uint64_t>(line);
    return infer::trace_output(models_.of(run), decode_options(run, max_new_tokens), prompt, first_line);
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
    return json;
  }

  std::string fingerprint() const override {
    return fmt::format("{} {} {}{}", git_commit(), models_.target().model->info().device.str(), threads_,
                       models_.fingerprint());
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
      if (drafter.name == name && drafter.dtype) return parse_weight_type(*drafter.dtype, "drafter.dtype");
    }
    return parse_weight_type(options_.dtype, "dtype");
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

  // Records the pass that the window oracle replays: untimed, with the longest windows, once for each batch. A line
  // that fails here fails in the replay too.
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
