#include "infer/forced/match_rates.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "infer/self_drafting/methods.h"
#include "model/models/exits.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {
namespace {

// What reads a layer, and what it has counted.
struct Reader {
  int64_t layer;
  bool trained;
  std::vector<int64_t> tokens;  // [bins + 1, ranks] new tokens by bin of their positions and by rank
};

// Returns how many ids come before each label as candidates, the lower id first among equals: logits [B,L,V] and labels
// [B,L] to int64 [B,L]; V for labels that are no candidates themselves.
at::Tensor ranks_of(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor own = logits.gather(2, labels.unsqueeze(2));  // [B,L,1]
  const at::Tensor ids = at::arange(logits.size(2), labels.options());
  const at::Tensor before = logits.gt(own) | (logits.eq(own) & ids.lt(labels.unsqueeze(2)));  // [B,L,V]
  return at::where(own.squeeze(2).isfinite(), before.sum(2), logits.size(2));
}

class MatchPass {
 public:
  MatchPass(const GenerationModels& models, const MatchRateOptions& options)
      : target_(inside_model(*models.target)),
        exits_(models.exits),
        options_(options),
        layers_(options.layers),
        ranks_(*std::ranges::max_element(options.candidates) + 1) {
    if (layers_.empty()) {
      layers_.resize(static_cast<size_t>(target_.info().layers - 1));
      std::iota(layers_.begin(), layers_.end(), 1);
    }
    for (const int64_t layer : layers_) {
      add_reader(layer, false);
      const model::ExitShape* exit = exits_ == nullptr ? nullptr : exits_->find(layer);
      if (exit != nullptr && (exit->head != model::ExitHead::kShared || exit->own_norm)) add_reader(layer, true);
    }
    const model::GenerationConfig settings = models.settings();
    bos_ = settings.bos;
    settings_.processors = LogitsProcessors(settings);
    if (models.target_tokenizer != nullptr) settings_.ids = ids_in_use(*models.target_tokenizer, settings.eos_ids);
  }

  // Counts the tokens of a batch of outputs.
  void add(const ForcedBatch& texts) {
    std::vector<std::vector<int64_t>> sources(texts.sources.begin(), texts.sources.end());
    for (auto& source : sources) {
      if (source.empty() && bos_ && !target_.info().encoder_decoder) source = {*bos_};
    }
    TeacherForcing forcing(target_, {sources, texts.outputs, layers_, model::Logits::kNone});
    const std::vector<Row> rows = rows_of(sources);
    const int64_t at_once = forcing.positions_at_once();
    for (int64_t done = 0; done < forcing.longest(); done += at_once) {
      const int64_t width = std::min(at_once, forcing.longest() - done);
      const std::vector<int64_t> valid = forcing.valid(width);
      const auto hidden = forcing.next_output(width).hidden;
      const std::vector<int64_t> first(valid.size(), done);
      const at::Tensor labels = labels_of(texts.outputs, first, valid, width).ids.to(target_.info().device);
      for (Reader& reader : readers_) {
        const auto place = std::ranges::find(layers_, reader.layer) - layers_.begin();
        const at::Tensor& own = hidden[static_cast<size_t>(place)];
        const at::Tensor logits =
            reader.trained ? exits_->logits(target_, reader.layer, own) : target_.exit_head(own);  // [B,L,V]
        settings_.process(logits, {rows, texts.outputs, done});
        add_ranks(reader, ranks_of(logits, labels), done, valid);
      }
    }
  }

  // Returns the cells of all readers, those of one layer together.
  std::vector<MatchRate> cells(const std::string& decoding) const {
    std::vector<MatchRate> cells;
    for (const int64_t layer : layers_) {
      for (const int64_t k : options_.candidates) {
        for (const Reader& reader : readers_) {
          if (reader.layer == layer) add_cells(reader, {decoding, layer, k, reader.trained, "total"}, cells);
        }
      }
    }
    return cells;
  }

 private:
  void add_reader(int64_t layer, bool trained) {
    readers_.push_back({layer, trained, std::vector<int64_t>(static_cast<size_t>((options_.bins + 1) * ranks_), 0)});
  }

  // Returns the outputs' rows before their first new token, for logits processors.
  std::vector<Row> rows_of(std::span<const std::vector<int64_t>> sources) const {
    std::vector<Row> rows;
    for (const std::vector<int64_t>& source : sources) {
      rows.push_back(row_before_output(source, target_.info().encoder_decoder, target_.info().decoder_start));
      rows.back().limit = options_.max_new_tokens;
    }
    return rows;
  }

  // Counts ranks [B,L] of the outputs' tokens from `first` on. Ranks that no k reaches count as one.
  void add_ranks(Reader& reader, const at::Tensor& ranks, int64_t first, std::span<const int64_t> valid) const {
    const std::vector<int64_t> values = to_host(ranks.clamp_max(ranks_ - 1));
    const int64_t width = ranks.size(1);
    for (int64_t b = 0; b < std::ssize(valid); ++b) {
      for (int64_t j = 0; j < valid[static_cast<size_t>(b)]; ++j) {
        const int64_t bin = std::min((first + j) / options_.bin, options_.bins);
        ++reader.tokens[static_cast<size_t>(bin * ranks_ + values[static_cast<size_t>(b * width + j)])];
      }
    }
  }

  std::string positions_of(int64_t bin) const {
    const int64_t first = bin * options_.bin + 1;
    if (bin == options_.bins) return std::to_string(first) + "-";
    return options_.bin == 1 ? std::to_string(first) : fmt::format("{}-{}", first, first + options_.bin - 1);
  }

  // Adds the cells of one reader and k; `total` is the last one.
  void add_cells(const Reader& reader, MatchRate total, std::vector<MatchRate>& cells) const {
    for (int64_t bin = 0; bin <= options_.bins; ++bin) {
      const auto first = reader.tokens.begin() + bin * ranks_;
      MatchRate own{total.decoding, total.layer, total.k, total.trained, positions_of(bin)};
      own.matches = std::accumulate(first, first + total.k, int64_t{0});
      own.tokens = std::accumulate(first, first + ranks_, int64_t{0});
      total.matches += own.matches;
      total.tokens += own.tokens;
      if (bin < options_.bins || own.tokens > 0) cells.push_back(own);
    }
    cells.push_back(total);
  }

  model::TransformerModel& target_;
  const model::Exits* exits_;
  const MatchRateOptions& options_;
  std::vector<int64_t> layers_;
  int64_t ranks_;
  std::vector<Reader> readers_;
  DecodeSettings settings_;
  std::optional<int64_t> bos_;
};

DecodeOptions decode_options(const MatchRateOptions& options, const MatchDecoding& decoding) {
  DecodeOptions wanted;
  wanted.method = baseline_method(decoding.temperature).name;
  wanted.temperature = decoding.temperature;
  wanted.top_k = decoding.top_k;
  wanted.top_p = decoding.top_p;
  wanted.min_p = 0;
  wanted.max_new_tokens = options.max_new_tokens;
  wanted.seed = options.seed;
  wanted.batch_size = options.batch_size;
  return wanted;
}

}  // namespace

std::vector<MatchDecoding> paper_decodings() {
  return {{"greedy"}, {"top-k", 1, 3, 1}, {"top-p", 1, 0, 0.95}};
}

double MatchRate::rate() const {
  return tokens == 0 ? std::numeric_limits<double>::quiet_NaN()
                     : static_cast<double>(matches) / static_cast<double>(tokens);
}

void check_match_rates(const MatchRateOptions& options, const model::ModelInfo& target, const std::string& where,
                       Problems& problems) {
  for (const int64_t layer : options.layers) {
    if (layer <= target.layers) continue;
    problems.add({where, "a layer is outside the model", fmt::format("1..{}, the decoder's layers", target.layers),
                  std::to_string(layer), ""});
  }
  for (const int64_t k : options.candidates) {
    if (k <= target.vocabulary) continue;
    problems.add({where, "a number of candidates is outside the vocabulary", fmt::format("1..{}", target.vocabulary),
                  std::to_string(k), ""});
  }
}

std::vector<MatchRate> count_matches(const GenerationModels& models, const std::string& decoding,
                                     std::span<const std::vector<int64_t>> prompts,
                                     std::span<const std::vector<int64_t>> outputs, const MatchRateOptions& options) {
  const at::NoGradGuard no_grad;
  MatchPass pass(models, options);
  for_each_batch({prompts, outputs}, static_cast<size_t>(options.batch_size),
                 [&](const ForcedBatch& batch) { pass.add(batch); });
  return pass.cells(decoding);
}

std::vector<MatchRate> match_rates(const GenerationModels& models, std::span<const std::vector<int64_t>> prompts,
                                   const MatchRateOptions& options) {
  std::vector<MatchRate> rates;
  for (const MatchDecoding& decoding : options.decodings) {
    std::vector<std::vector<int64_t>> outputs;
    auto results = Generator(models, decode_options(options, decoding)).generate(prompts);
    throw_if_failed(results);
    for (auto& result : results) outputs.push_back(std::move(result.ids));
    const auto own = count_matches(models, decoding.name, prompts, outputs, options);
    rates.insert(rates.end(), own.begin(), own.end());
  }
  return rates;
}

}  // namespace draftsmith::infer
