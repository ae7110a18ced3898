#include "infer/generator.h"

#include <algorithm>
#include <numeric>

#include "infer/decode_loop.h"
#include "infer/drafters/make_drafter.h"
#include "infer/prefill.h"
#include "infer/vocabulary.h"
#include "model/decoding_guard.h"

namespace draftsmith::infer {

namespace {

model::GenerationConfig settings_of(const GenerationModels& models) {
  if (models.generation) return *models.generation;
  model::GenerationConfig settings;
  settings.eos_ids = models.target->info().eos;
  settings.pad = models.target->info().pad;
  settings.decoder_start = models.target->info().decoder_start;
  return settings;
}

Warping warping_of(const DecodeOptions& options, const model::GenerationConfig& settings) {
  const double usual = options.samples_by_default() ? settings.temperature.value_or(1.0) : 0.0;
  return {options.temperature.value_or(usual), options.top_k.value_or(settings.top_k.value_or(0)),
          options.top_p.value_or(settings.top_p.value_or(1.0))};
}

}  // namespace

struct Generator::Impl {
  GenerationModels models;
  DecodeOptions options;
  model::GenerationConfig generation;
  DecodeSettings settings;
  DraftParts parts;

  Impl(GenerationModels given, DecodeOptions wanted) : models(std::move(given)), options(std::move(wanted)) {
    Problems problems;
    validate_options(options, "decoding", problems);
    problems.throw_if_any();
    generation = settings_of(models);
    model::require_supported(generation, models.target->info().name);
    settings.warping = warping_of(options, generation);
    settings.processors = LogitsProcessors(generation, options.min_new_tokens);
    settings.eos = generation.eos_ids;
    settings.measure_alpha = options.measure_alpha;
    if (models.target_tokenizer != nullptr) settings.ids = ids_in_use(*models.target_tokenizer, settings.eos);
  }

  void use(DraftParts given) {
    parts = std::move(given);
    Problems problems;
    validate_parts(parts, settings.warping.temperature, problems);
    problems.throw_if_any();
  }

  int64_t limit_of(int64_t prefix, size_t line) const;
  Row make_row(const std::vector<int64_t>& source, size_t line, uint64_t first_line, int64_t sample) const;
  void check_ids(const std::vector<int64_t>& source, size_t line) const;
  RowBatch decode(std::span<const std::vector<int64_t>> sources, std::span<const size_t> chosen, uint64_t first_line);
  void begin(RowBatch& batch, const model::TokenBatch& sources, PhaseTimer& timer);
};

int64_t Generator::Impl::limit_of(int64_t prefix, size_t line) const {
  int64_t limit = 128;
  if (options.max_new_tokens || generation.max_new_tokens) {
    limit = options.max_new_tokens ? *options.max_new_tokens : *generation.max_new_tokens;
  } else if (generation.max_length) {
    limit = *generation.max_length - prefix;
  }
  const int64_t positions = models.target->info().max_positions;
  if (positions > 0) limit = std::min(limit, positions - prefix);
  if (limit < 1) {
    throw UserError({"input " + std::to_string(line + 1), "the prompt leaves no room for a new token",
                     "a prompt shorter than the model's length limit", std::to_string(prefix) + " tokens",
                     "shorten the prompt or raise max_new_tokens"});
  }
  return limit;
}

void Generator::Impl::check_ids(const std::vector<int64_t>& source, size_t line) const {
  const int64_t vocabulary = models.target->info().vocabulary;
  for (const int64_t id : source) {
    if (id >= 0 && id < vocabulary) continue;
    throw UserError({"input " + std::to_string(line + 1), "a token id is outside the model's vocabulary",
                     "ids in 0.." + std::to_string(vocabulary - 1), std::to_string(id),
                     "encode the input with the model's own tokenizer"});
  }
}

Row Generator::Impl::make_row(const std::vector<int64_t>& source, size_t line, uint64_t first_line,
                              int64_t sample) const {
  Row row;
  row.line = first_line + line;
  row.output = line * static_cast<size_t>(options.num_samples) + static_cast<size_t>(sample);
  if (models.target->info().encoder_decoder) {
    row.source = source;
    row.tokens = {generation.decoder_start};
  } else if (!source.empty()) {
    row.tokens = source;
  } else if (generation.bos) {
    row.tokens = {*generation.bos};
  } else {
    throw UserError({"input " + std::to_string(line + 1), "the prompt is empty and the model has no first token",
                     "at least one token", "none", "give a prompt"});
  }
  row.prefix = row.length();
  row.limit = limit_of(row.prefix, line);
  row.random = RowRandom(options.seed, first_line + line, static_cast<uint64_t>(sample));
  return row;
}

// Encoders and prompts: everything before the first token is decided.
void Generator::Impl::begin(RowBatch& batch, const model::TokenBatch& sources, PhaseTimer& timer) {
  model::LanguageModel& target = *models.target;
  int64_t capacity = 0;
  for (const Row& row : batch.rows) capacity = std::max(capacity, row.prefix + row.limit);
  const bool encodes = target.info().encoder_decoder;
  timer.enter(Phase::kEncode);
  const model::EncoderStates encoder = encodes ? target.encode(sources) : model::EncoderStates{};
  DraftBegin draft{sources, options.num_samples, batch.rows, capacity, encodes ? &encoder : nullptr, nullptr};
  if (parts.drafter) parts.drafter->encode(draft);
  timer.enter(Phase::kPrefill);
  batch.state = begin_state(target, encoder, batch.rows, {capacity, options.num_samples});
  draft.target_state = batch.state.get();
  if (parts.drafter) parts.drafter->prefill(draft);
  timer.enter(Phase::kOther);
  batch.share(timer.take());
}

RowBatch Generator::Impl::decode(std::span<const std::vector<int64_t>> sources, std::span<const size_t> chosen,
                                 uint64_t first_line) {
  PhaseTimer timer(models.target->info().device);
  RowBatch batch;
  model::TokenBatch padded;
  size_t width = 1;
  for (const size_t line : chosen) {
    width = std::max(width, sources[line].size());
    for (int64_t s = 0; s < options.num_samples; ++s)
      batch.rows.push_back(make_row(sources[line], line, first_line, s));
  }
  std::vector<int64_t> tokens(chosen.size() * width, generation.pad);
  for (size_t b = 0; b < chosen.size(); ++b) {
    const auto& source = sources[chosen[b]];
    std::copy(source.begin(), source.end(), tokens.begin() + static_cast<int64_t>(b * width));
    padded.lengths.push_back(static_cast<int64_t>(source.size()));
  }
  padded.tokens = to_device(tokens, {static_cast<int64_t>(chosen.size()), static_cast<int64_t>(width)},
                            models.target->info().device);  // [B,S]
  begin(batch, padded, timer);
  if (options.drafts()) {
    DecodeLoop(*models.target, parts, settings).run(batch, timer);
  } else {
    decode_plainly(*models.target, settings, batch, timer);
  }
  const PhaseSeconds rest = timer.take().scaled(1.0 / static_cast<double>(batch.finished.size()));
  for (Row& row : batch.finished) row.stats.seconds += rest;
  return batch;
}

Generator::Generator(GenerationModels models, DecodeOptions options)
    : impl_(std::make_unique<Impl>(std::move(models), std::move(options))) {
  Problems problems;
  if (impl_->options.drafts()) check_drafter(impl_->models, impl_->options.method, problems);
  problems.throw_if_any();
  if (!impl_->options.drafts()) return;
  impl_->use(make_parts(impl_->options, make_drafter(impl_->models)));
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

std::vector<GenerationResult> Generator::generate(std::span<const std::vector<int64_t>> sources, uint64_t first_line,
                                                  const OnResults& on_results) {
  const model::DecodingGuard guard;
  for (size_t line = 0; line < sources.size(); ++line) impl_->check_ids(sources[line], line);
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  const auto samples = static_cast<size_t>(impl_->options.num_samples);
  std::vector<GenerationResult> results(sources.size() * samples);
  std::vector<bool> complete(sources.size(), false);
  size_t reported = 0;
  const auto batch_size = static_cast<size_t>(impl_->options.batch_size);
  for (size_t first = 0; first < order.size(); first += batch_size) {
    const std::span<const size_t> chosen(order.data() + first, std::min(batch_size, order.size() - first));
    RowBatch batch = impl_->decode(sources, chosen, first_line);
    for (Row& row : batch.finished) {
      results[row.output] = {{row.tokens.begin() + row.prefix, row.tokens.end()}, std::move(row.stats)};
    }
    for (const size_t line : chosen) complete[line] = true;
    const size_t before = reported;
    while (reported < sources.size() && complete[reported]) ++reported;
    if (on_results && reported > before) {
      on_results(before * samples, {results.data() + before * samples, (reported - before) * samples});
    }
  }
  return results;
}

DecodeStats total(std::span<const GenerationResult> results) {
  DecodeStats sum;
  for (const GenerationResult& result : results) sum += result.stats;
  return sum;
}

}  // namespace draftsmith::infer
