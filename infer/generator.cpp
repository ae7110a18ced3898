#include "infer/generator.h"

#include <algorithm>

#include "base/device_graph.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/registry.h"
#include "infer/loop/decode_loop.h"
#include "infer/loop/device_loop.h"
#include "infer/loop/processors.h"
#include "infer/self_drafting/methods.h"
#include "infer/windows/window_rules.h"
#include "model/transformer/transformer_model.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::infer {

// ---- Parts of draft-then-verify methods

DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter, const GenerationModels& models) {
  return {std::move(drafter), make_window_rule(options, models), make_acceptance_rule(options)};
}

namespace {

template <class Add>
void check_free_token(const PartTraits& parts, const Add& add) {
  if (parts.acceptance.target != TargetRole::kReads) return;
  if (!parts.drafter.reads_target) {
    add("without the free token the target writes nothing, and this drafter does not read it either",
        "drafter tandem or features, or free_token = true", "drafter " + std::string(parts.drafter.name),
        "decode with the drafter alone");
  } else if (parts.window.decides == Decides::kBeforeToken) {
    add("without the free token a window that may end before its first token would write nothing",
        "a window rule that keeps the token it looks at, or free_token = true", "window " + parts.window.name,
        "use the window fixed or dynamic");
  }
}

// A window that replays an earlier pass must not fall out of step with it.
template <class Add>
void check_replay(const PartTraits& parts, double temperature, const Add& add) {
  const AcceptanceTraits& acceptance = parts.acceptance;
  const std::string window = "window " + parts.window.name;
  if (!acceptance.lossless) {
    add(window + " knows where drafts leave the target's output, and this acceptance lets them",
        "an acceptance without loss: exact, rejection or block", "acceptance " + acceptance.name,
        "use the window fixed");
  }
  if (temperature != 0) {
    add(window + " replays where greedy drafts were rejected, and sampled ones are rejected elsewhere", "temperature 0",
        "temperature " + std::to_string(temperature), "use another window rule to sample");
  }
  if (!parts.drafter.logits) {
    add(window + " replays whole windows, and this drafter ends its drafts where it likes",
        "a drafter with probabilities", "drafter " + std::string(parts.drafter.name), "use the window fixed");
  }
}

// Look-up stands before drafters and windows that need not see every token.
template <class Add>
void check_lookup(const PartTraits& parts, const Add& add) {
  const DrafterTraits& drafter = parts.drafter;
  const WindowTraits& window = parts.window;
  if (!drafter.logits || drafter.in_target) {
    add(drafter.in_target ? "layers of the model draft, and it goes on from their states: look-up cannot pass them by"
                          : "this drafter is look-up itself, which has none before it",
        "a model, a Tandem secondary, a features drafter or an n-gram table", "drafter " + std::string(drafter.name),
        "leave lookup out");
  } else if (window.asks_router || window.replays) {
    add("window " + window.name + " is made for the drafter's own tokens, and look-up copies others",
        "the window fixed, dynamic, entropy or fallback", "window " + window.name, "leave lookup out");
  }
}

}  // namespace

void validate_parts(const PartTraits& parts, double temperature, Problems& problems) {
  const DrafterTraits& drafter = parts.drafter;
  const WindowTraits& window = parts.window;
  const AcceptanceTraits& acceptance = parts.acceptance;
  const std::string where =
      "drafter " + std::string(drafter.name) + ", window " + window.name + ", acceptance " + acceptance.name;
  const auto add = [&](std::string what, std::string expected, std::string found, std::string hint) {
    problems.add({where, std::move(what), std::move(expected), std::move(found), std::move(hint)});
  };
  if (acceptance.greedy_only && temperature != 0) {
    add("acceptance " + acceptance.name + " compares with the target's most likely token, which is not sampling",
        "temperature 0", "temperature " + std::to_string(temperature), "use the acceptance rejection to sample");
  }
  check_free_token(parts, add);
  if (parts.lookup > 0) check_lookup(parts, add);
  if (window.replays) check_replay(parts, temperature, add);
  if (window.asks_router && !drafter.is_model) {
    problems.add(router_needs_model("window " + window.name, std::string(drafter.name)));
  } else if (window.decides != Decides::kUpFront && !drafter.logits) {
    add("window " + window.name + " stops where the drafter is unsure, and this drafter only proposes tokens",
        "a drafter whose probabilities say how sure it is", "drafter " + std::string(drafter.name),
        "use the window fixed");
  }
}

// ---- Settings of a generation
// The options, and the model's own where options are silent.

namespace {

Warping warping_of(const DecodeOptions& options, const model::GenerationConfig& settings) {
  const double usual = options.samples_by_default() ? settings.temperature.value_or(1.0) : 0.0;
  return {options.temperature.value_or(usual), options.top_k.value_or(settings.top_k.value_or(0)),
          options.top_p.value_or(settings.top_p.value_or(1.0)), options.min_p.value_or(settings.min_p.value_or(0.0))};
}

void require_tokenizer_for_stops(const GenerationModels& models) {
  if (models.target_tokenizer != nullptr) return;
  throw UserError({.where = "stop_strings of " + models.target->info().name,
                   .what = "stop strings are looked for in text, and the model has no tokenizer",
                   .expected = "a tokenizer in the model's directory",
                   .found = "none",
                   .hint = "leave stop_strings out, or add the tokenizer"});
}

// Returns the model's generation settings with those that the options give in their place. Errors: UserError for
// settings that no method here supports, and for stop strings of a model without a tokenizer.
model::GenerationConfig generation_settings(const GenerationModels& models, const DecodeOptions& options) {
  model::GenerationConfig settings = models.settings();
  settings.repetition_penalty = options.repetition_penalty.value_or(settings.repetition_penalty);
  settings.no_repeat_ngram_size = options.no_repeat_ngram_size.value_or(settings.no_repeat_ngram_size);
  if (options.min_new_tokens) settings.min_new_tokens = options.min_new_tokens;
  if (!options.stop_strings.empty()) settings.stop_strings = options.stop_strings;
  model::require_supported(settings, models.target->info().name);
  if (!settings.stop_strings.empty()) require_tokenizer_for_stops(models);
  return settings;
}

// Returns what every method applies at every position. `generation` is what generation_settings() returned.
DecodeSettings decode_settings(const GenerationModels& models, const DecodeOptions& options,
                               const model::GenerationConfig& generation) {
  DecodeSettings settings;
  settings.warping = warping_of(options, generation);
  settings.processors = LogitsProcessors(generation);
  settings.eos = generation.eos_ids;
  settings.measure_alpha = options.measure_alpha;
  if (models.target_tokenizer != nullptr) settings.ids = ids_in_use(*models.target_tokenizer, settings.eos);
  return settings;
}

// ---- Generation

// Reports a problem if the method has no drafter, one of another kind than it needs, or one that does not fit.
void check_drafter(const GenerationModels& models, const DecodeOptions& options, Problems& problems) {
  const std::string where = "method " + options.method;
  const bool given = models.drafter != nullptr;
  const bool features =
      given && models.drafter->transformer() != nullptr && models.drafter->transformer()->config().reads_features();
  if (options.needs_tandem() && !(given && models.drafter->reads_target() && !features)) {
    problems.add({where, "this method's drafter is a Tandem secondary of the model",
                  "the directory of a Tandem secondary (DraftsmithTandem in its config.json)",
                  "another drafter or none",
                  "train one with a recipe, or use the method speculative, assisted or bild"});
  } else if (!given) {
    problems.add({where, "this method needs a drafter", "a drafter", "none",
                  "give one with --drafter, or use the method greedy or sample"});
  } else {
    models.drafter->check(models.draft_target(), problems);
    if (window_traits(options).asks_router && models.drafter->model() == nullptr) {
      problems.add(router_needs_model("window " + options.window_rule_name(), models.drafter->name()));
    }
  }
}

// Returns the drafter at work, with look-up before it if the options want that. Errors: UserError for copies that
// `generation` forbids.
std::unique_ptr<Drafter> drafter_at_work(const GenerationModels& models, const DecodeOptions& options,
                                         const model::GenerationConfig& generation) {
  std::unique_ptr<Drafter> drafter = models.drafter->make(models.draft_target());
  const int64_t shortest = options.copied_behind(), size = generation.no_repeat_ngram_size;
  if (shortest == 0) return drafter;
  if (!models.target->info().encoder_decoder && size > 0 && size <= std::max(shortest, kLongestLookup) + 1) {
    throw UserError({.where = "lookup " + std::to_string(shortest),
                     .what = "look-up copies n-grams of prompt and output, and no_repeat_ngram_size forbids them",
                     .expected = "no_repeat_ngram_size 0, or no lookup",
                     .found = "no_repeat_ngram_size " + std::to_string(size),
                     .hint = "leave lookup out"});
  }
  return with_lookup(std::move(drafter), shortest, models.target->info());
}

// One call of generate().
struct GenerateCall {
  std::span<const std::vector<int64_t>> sources;
  std::vector<PromptFit> fits;  // one a source
  uint64_t first_line = 0;
};

}  // namespace

struct Generator::Impl {
  GenerationModels models;
  DecodeOptions options;
  model::GenerationConfig generation;
  DecodeSettings settings;
  std::optional<Prompts> prompts;
  DraftParts parts;
  std::optional<DeviceLoop> on_device;                    // with what it recorded; absent before the first batch
  std::shared_ptr<const std::vector<std::string>> stops;  // null: none

  Impl(GenerationModels given, DecodeOptions wanted) : models(std::move(given)), options(std::move(wanted)) {
    throw_problems_of(validate_options<DecodeOptions>, options, "decoding");
    if (options.drafts_inside()) models.drafter = exit_drafter(exit_layer_of(options, models.exits));
    generation = generation_settings(models, options);
    settings = decode_settings(models, options, generation);
    prompts.emplace(models, options, generation);
    if (!generation.stop_strings.empty()) {
      stops = std::make_shared<const std::vector<std::string>>(generation.stop_strings);
    }
  }

  void use(DraftParts given) {
    parts = std::move(given);
    throw_problems_of(validate_parts,
                      PartTraits{parts.drafter->traits(), parts.window->traits(), parts.acceptance->traits(),
                                 options.copied_behind()},
                      settings.warping.temperature);
  }

  Row make_row(const GenerateCall& work, size_t line, int64_t sample) const {
    const std::vector<int64_t>& source = work.sources[line];
    Row row;
    row.line = work.first_line + line;
    row.output = line * static_cast<size_t>(options.num_samples) + static_cast<size_t>(sample);
    row.prompted = !models.target->info().encoder_decoder;
    if (!row.prompted) row.source = source;
    row.tokens = prompts->prompt_of(source, work.fits[line].dropped);
    row.prefix = row.length();
    row.limit = work.fits[line].room;
    const model::LanguageModel* drafter = models.drafter ? models.drafter->model() : nullptr;
    row.stats.target_steps.window = models.target->info().window;
    row.stats.draft_steps.window = (drafter != nullptr ? drafter : models.target)->info().window;
    row.random = RowRandom(options.seed, row.line, static_cast<uint64_t>(sample));
    if (stops) {
      row.stops = std::make_shared<StopStringMatcher>(stops, *models.target_tokenizer);
      for (const int64_t token : row.input()) {
        if (row.prompted) row.stops->add(token);
      }
    }
    return row;
  }

  // Encoders and prompts: everything before the first token is decided.
  void begin(RowBatch& batch, const model::TokenBatch& sources, PhaseTimer& timer) {
    model::LanguageModel& target = *models.target;
    int64_t capacity = 0;
    for (const Row& row : batch.rows) capacity = std::max(capacity, row.prefix + row.limit);
    const bool encodes = target.info().encoder_decoder;
    timer.enter(Phase::kEncode);
    const model::EncoderStates encoder = encodes ? target.encode(sources) : model::EncoderStates{};
    DraftBegin draft{sources, options.num_samples, batch.rows, capacity, encodes ? &encoder : nullptr, nullptr};
    if (parts.drafter) parts.drafter->encode(draft);
    timer.enter(Phase::kPrefill);
    Prefill prefilled = prefill(target, encoder, batch.rows, {capacity, options.num_samples},
                                parts.drafter ? parts.drafter->target_layers() : std::vector<int64_t>{});
    batch.state = std::move(prefilled.state);
    draft.target_state = batch.state.get();
    draft.prompt_hidden = prefilled.prompt_hidden;
    if (parts.drafter) parts.drafter->prefill(draft);
    timer.enter(Phase::kOther);
    batch.add_time(timer.lap());
  }

  // Warns once if the drafter's positions end before a text may.
  void warn_of_positions(std::span<const Row> rows) const {
    for (const Row& row : rows) {
      if (parts.drafter->room(row) >= row.limit) continue;
      const int64_t tokens = std::max(std::ssize(row.source), row.prefix + row.limit);
      return models.drafter->warn_of_positions(models.target->info(), tokens);
    }
  }

  // Does begin(). Returns false if the device has too little memory.
  bool begins(RowBatch& batch, const model::TokenBatch& sources, PhaseTimer& timer) {
    try {
      begin(batch, sources, timer);
      return true;
    } catch (const c10::OutOfMemoryError&) {
      return false;
    }
  }

  // Frees what earlier batches left on the device.
  void free_device_memory(RowBatch& batch) {
    batch.state.reset();
    on_device.reset();
    models.target->free_states();
    if (model::LanguageModel* drafter = models.drafter ? models.drafter->model() : nullptr) drafter->free_states();
  }

  RowBatch decode(const GenerateCall& work, std::span<const size_t> chosen, const OnTokens& on_tokens) {
    PhaseTimer timer(models.target->info().device);
    RowBatch batch;
    batch.on_tokens = on_tokens;
    std::vector<std::span<const int64_t>> chosen_sources;
    model::TokenBatch sources;
    for (const size_t line : chosen) {
      chosen_sources.emplace_back(work.sources[line]);
      sources.lengths.push_back(std::ssize(work.sources[line]));
      for (int64_t s = 0; s < options.num_samples; ++s) batch.rows.push_back(make_row(work, line, s));
    }
    if (models.drafter && parts.drafter) warn_of_positions(batch.rows);
    const model::ModelInfo& info = models.target->info();
    if (info.encoder_decoder) sources.tokens = padded(chosen_sources, generation.pad, info.device);  // [B,S]
    if (!begins(batch, sources, timer)) {
      free_device_memory(batch);
      begin(batch, sources, timer);
    }
    run(batch, timer);
    models.target->give_back(std::move(batch.state));
    const PhaseSeconds rest = timer.lap().scaled(1.0 / static_cast<double>(batch.finished.size()));
    for (Row& row : batch.finished) row.stats.seconds += rest;
    return batch;
  }

  // Decodes rows whose prompts have been processed, with the loop of the method.
  void run(RowBatch& batch, PhaseTimer& timer) {
    if (options.decodes_inside()) return decode_inside(models, options, settings, batch, timer);
    model::LanguageModel& target = *models.target;
    if (records_graphs(target.info().device)) {
      if (!on_device) on_device.emplace(target, options.drafts() ? &parts : nullptr, settings);
      if (on_device->takes(batch)) return on_device->run(batch, timer);
    }
    if (!options.drafts()) return decode_plainly(target, settings, batch, timer);
    decode_with_drafts(target, parts, settings, batch, timer);
  }

  // Moves finished rows to the results of their outputs.
  static void take_results(std::vector<Row> rows, std::vector<GenerationResult>& results) {
    for (Row& row : rows) {
      GenerationResult& result = results[row.output];
      if (!row.failure) result.ids.assign(row.tokens.begin() + row.prefix, row.tokens.end());
      result.stats = std::move(row.stats);
      result.error = std::move(row.failure);
    }
  }
};

Generator::Generator(GenerationModels models, DecodeOptions options)
    : impl_(std::make_unique<Impl>(std::move(models), std::move(options))) {
  Problems problems;
  if (impl_->options.drafts()) check_drafter(impl_->models, impl_->options, problems);
  check_inside(impl_->models, impl_->options, problems);
  problems.throw_if_any();
  if (!impl_->options.drafts()) return;
  const GenerationModels& all = impl_->models;
  impl_->use(make_parts(impl_->options, drafter_at_work(all, impl_->options, impl_->generation), all));
}

Generator::Generator(GenerationModels models, DecodeOptions options, DraftParts parts)
    : impl_(std::make_unique<Impl>(std::move(models), std::move(options))) {
  impl_->use(std::move(parts));
}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;

const DecodeOptions& Generator::options() const {
  return impl_->options;
}
const DecodeSettings& Generator::settings() const {
  return impl_->settings;
}

std::optional<int64_t> Generator::carried_window() const {
  return impl_->parts.window ? impl_->parts.window->carried() : std::nullopt;
}

void Generator::carry_window(std::optional<int64_t> window) {
  if (impl_->parts.window) impl_->parts.window->carry(window);
}

std::vector<PromptFit> Generator::fit(std::span<const std::vector<int64_t>> sources, uint64_t first_line) const {
  std::vector<PromptFit> fits;
  fits.reserve(sources.size());
  for (const auto& source : sources) fits.push_back(impl_->prompts->fit(source, first_line + fits.size()));
  return fits;
}

std::vector<GenerationResult> Generator::generate(std::span<const std::vector<int64_t>> sources, uint64_t first_line,
                                                  const OnResults& on_results, const OnTokens& on_tokens) {
  const model::DecodingGuard guard;
  const GenerateCall work{sources, fit(sources, first_line), first_line};
  const auto samples = static_cast<size_t>(impl_->options.num_samples);
  std::vector<GenerationResult> results(sources.size() * samples);
  std::vector<bool> complete;
  std::vector<size_t> order;
  for (size_t line = 0; line < sources.size(); ++line) {
    complete.push_back(work.fits[line].skipped);
    if (!complete[line]) order.push_back(line);
    for (size_t s = 0; complete[line] && on_tokens && s < samples; ++s) on_tokens(line * samples + s, {}, true);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  size_t reported = 0;
  const auto report = [&] {
    const size_t before = reported;
    while (reported < sources.size() && complete[reported]) ++reported;
    if (on_results && reported > before) {
      on_results(before * samples, {results.data() + before * samples, (reported - before) * samples});
    }
  };
  report();
  const auto batch_size = static_cast<size_t>(impl_->options.lines_together());
  for (size_t first = 0; first < order.size(); first += batch_size) {
    const std::span<const size_t> chosen(order.data() + first, std::min(batch_size, order.size() - first));
    RowBatch batch = impl_->decode(work, chosen, on_tokens);
    impl_->take_results(std::move(batch.finished), results);
    for (const size_t line : chosen) complete[line] = true;
    report();
  }
  return results;
}

void throw_if_failed(std::span<const GenerationResult> results) {
  const auto failed = std::ranges::find_if(results, [](const auto& result) { return result.error.has_value(); });
  if (failed != results.end()) throw RunError(*failed->error);
}

DecodeStats total(std::span<const GenerationResult> results) {
  DecodeStats sum;
  for (const GenerationResult& result : results) sum += result.stats;
  return sum;
}

}  // namespace draftsmith::infer
