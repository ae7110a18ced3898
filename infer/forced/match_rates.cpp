#include "infer/forced/match_rates.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "infer/forced/teacher_forcing.h"
#include "infer/loop/processors.h"
#include "infer/self_drafting/methods.h"
#include "model/models/exits.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

namespace {

// What reads a layer.
struct Reader {
  int64_t layer;
  bool trained;
};

std::vector<Reader> readers_of(const MatchRateOptions& options, int64_t layers, const model::Exits* exits) {
  std::vector<int64_t> wanted = options.layers;
  for (int64_t layer = 1; options.layers.empty() && layer < layers; ++layer) wanted.push_back(layer);
  std::vector<Reader> readers;
  for (const int64_t layer : wanted) {
    readers.push_back({layer, false});
    const model::ExitShape* exit = exits == nullptr ? nullptr : exits->find(layer);
    const bool own = exit == nullptr || (exit->head == model::ExitHead::kShared && !exit->own_norm);
    if (!own) readers.push_back({layer, true});
  }
  return readers;
}

// How many tokens are at each position, and how many of them have which rank for which reader. Ranks count from 0; one
// that no k reaches is the last.
class RankCounts {
 public:
  RankCounts(const MatchRateOptions& options, size_t readers)
      : options_(options),
        ranks_(*std::max_element(options.candidates.begin(), options.candidates.end()) + 1),
        counts_(readers, std::vector<int64_t>(static_cast<size_t>((options.bins + 1) * ranks_), 0)) {}

  int64_t unreached() const { return ranks_ - 1; }

  // One new token, the output's at `position` from 0.
  void add(size_t reader, int64_t position, int64_t rank) {
    const int64_t bin = std::min(position / options_.bin, options_.bins);
    ++counts_[reader][static_cast<size_t>(bin * ranks_ + rank)];
  }

  // Tokens of a bin whose rank is below k.
  int64_t below(size_t reader, int64_t bin, int64_t k) const {
    const auto first = counts_[reader].begin() + bin * ranks_;
    return std::accumulate(first, first + k, int64_t{0});
  }
  int64_t tokens(size_t reader, int64_t bin) const { return below(reader, bin, ranks_); }

 private:
  const MatchRateOptions& options_;
  int64_t ranks_;
  std::vector<std::vector<int64_t>> counts_;  // [readers][bins + 1, ranks]
};

// How many ids come before each label as candidates, the lower id first among equals: logits [B,L,V] and labels [B,L]
// to int64 [B,L]; V for labels that are no candidates themselves.
at::Tensor ranks_of(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor own = logits.gather(2, labels.unsqueeze(2));  // [B,L,1]
  const at::Tensor ids = at::arange(logits.size(2), labels.options());
  const at::Tensor before = logits.gt(own) | (logits.eq(own) & ids.lt(labels.unsqueeze(2)));  // [B,L,V]
  return at::where(own.squeeze(2).isfinite(), before.sum(2), logits.size(2));
}

// Counts the tokens of one batch of outputs.
class MatchPass {
 public:
  MatchPass(const GenerationModels& models, const MatchRateOptions& options)
      : target_(inside_model(models)), exits_(models.exits), options_(options) {
    readers_ = readers_of(options, target_.info().layers, exits_);
    for (const Reader& reader : readers_) {
      if (layers_.empty() || layers_.back() != reader.layer) layers_.push_back(reader.layer);
    }
    if (models.generation) {
      bos_ = models.generation->bos;
      processors_ = LogitsProcessors(*models.generation);
    }
    const auto& eos = models.generation ? models.generation->eos_ids : target_.info().eos;
    if (models.target_tokenizer != nullptr) ids_ = ids_in_use(*models.target_tokenizer, eos);
  }

  const std::vector<Reader>& readers() const { return readers_; }

  void add(std::span<const std::vector<int64_t>> prompts, std::span<const std::vector<int64_t>> outputs,
           RankCounts& counts) const {
    std::vector<std::vector<int64_t>> sources(prompts.begin(), prompts.end());
    for (auto& source : sources) {
      if (source.empty() && bos_ && !target_.info().encoder_decoder) source = {*bos_};
    }
    TeacherForcing forcing(target_, {sources, outputs, layers_, model::Logits::kNone});
    const std::vector<Row> rows = rows_of(sources);
    const int64_t at_once = forcing.positions_at_once();
    for (int64_t done = 0; done < forcing.longest(); done += at_once) {
      const int64_t width = std::min(at_once, forcing.longest() - done);
      const std::vector<int64_t> valid = forcing.valid(width);
      const auto hidden = forcing.next_output(width).hidden;
      const std::vector<int64_t> first(valid.size(), done);
      const at::Tensor labels = labels_of(outputs, first, valid, width).ids.to(target_.info().device);
      for (size_t r = 0; r < readers_.size(); ++r) {
        const size_t layer =
            static_cast<size_t>(std::find(layers_.begin(), layers_.end(), readers_[r].layer) - layers_.begin());
        const at::Tensor logits = read(readers_[r], hidden[layer]);  // [B,L,V]
        if (!processors_.empty()) processors_.apply(logits, {rows, outputs, done});
        add_ranks(r, ranks_of(logits, labels), done, valid, counts);
      }
    }
  }

 private:
  // The outputs' rows before their first new token, for logits processors.
  std::vector<Row> rows_of(std::span<const std::vector<int64_t>> sources) const {
    std::vector<Row> rows;
    for (const std::vector<int64_t>& source : sources) {
      rows.push_back(row_before_output(source, target_.info().encoder_decoder, target_.info().decoder_start));
      rows.back().limit = options_.max_new_tokens;
    }
    return rows;
  }

  at::Tensor read(const Reader& reader, const at::Tensor& hidden) const {
    const at::Tensor logits =
        reader.trained ? exits_->logits(target_, reader.layer, hidden) : target_.exit_head(hidden);
    mask_padding(logits, ids_);
    return logits;
  }

  static void add_ranks(size_t reader, const at::Tensor& ranks, int64_t first, std::span<const int64_t> valid,
                        RankCounts& counts) {
    const std::vector<int64_t> values = to_host(ranks.clamp_max(counts.unreached()));
    const int64_t width = ranks.size(1);
    for (int64_t b = 0; b < std::ssize(valid); ++b) {
      for (int64_t j = 0; j < valid[static_cast<size_t>(b)]; ++j) {
        counts.add(reader, first + j, values[static_cast<size_t>(b * width + j)]);
      }
    }
  }

  model::TransformerModel& target_;
  const model::Exits* exits_;
  const MatchRateOptions& options_;
  std::vector<Reader> readers_;
  std::vector<int64_t> layers_;
  LogitsProcessors processors_;
  std::optional<int64_t> bos_;
  int64_t ids_ = std::numeric_limits<int64_t>::max();
};

std::string positions_of(const MatchRateOptions& options, int64_t bin) {
  const int64_t first = bin * options.bin + 1;
  if (bin == options.bins) return std::to_string(first) + "-";
  return options.bin == 1 ? std::to_string(first) : fmt::format("{}-{}", first, first + options.bin - 1);
}

// The cells of one reader and k.
void add_cells(const MatchRateOptions& options, const RankCounts& counts, size_t reader, const MatchRate& cell,
               std::vector<MatchRate>& rates) {
  MatchRate total = cell;
  total.positions = "total";
  for (int64_t bin = 0; bin <= options.bins; ++bin) {
    MatchRate own = cell;
    own.positions = positions_of(options, bin);
    own.matches = counts.below(reader, bin, cell.k);
    own.tokens = counts.tokens(reader, bin);
    total.matches += own.matches;
    total.tokens += own.tokens;
    if (bin < options.bins || own.tokens > 0) rates.push_back(own);
  }
  rates.push_back(total);
}

void throw_problems(const MatchRateOptions& options, const GenerationModels& models) {
  Problems problems;
  check_match_rates(options, models.target->info(), "match rates", problems);
  problems.throw_if_any();
}

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
  const auto number = [&](const char* what, const std::string& expected, int64_t found) {
    problems.add({where, what, expected, std::to_string(found), ""});
  };
  int64_t before = 0;
  for (const int64_t layer : options.layers) {
    if (layer < 1 || layer > target.layers) {
      number("a layer is outside the model", fmt::format("1..{}, the decoder's layers", target.layers), layer);
    } else if (layer <= before) {
      number("layers are given twice or out of order", fmt::format("a layer above {}", before), layer);
    }
    before = layer;
  }
  if (options.candidates.empty()) number("no number of candidates is given", "at least one k", 0);
  for (const int64_t k : options.candidates) {
    if (k < 1 || k > target.vocabulary) {
      number("a number of candidates is outside the vocabulary", fmt::format("1..{}", target.vocabulary), k);
    }
  }
  if (options.bin < 1) number("the tokens in a bin of positions are out of range", "at least 1", options.bin);
  if (options.bins < 1 || options.bins > 8) number("the number of bins is out of range", "1..8", options.bins);
}

std::vector<MatchRate> count_matches(const GenerationModels& models, const MatchTexts& texts,
                                     const MatchRateOptions& options) {
  const at::NoGradGuard no_grad;
  throw_problems(options, models);
  if (texts.prompts.size() != texts.outputs.size()) throw std::logic_error("prompts and outputs differ in number");
  const MatchPass pass(models, options);
  RankCounts counts(options, pass.readers().size());
  for_each_batch({texts.prompts, texts.outputs}, static_cast<size_t>(options.batch_size),
                 [&](const ForcedBatch& batch) { pass.add(batch.sources, batch.outputs, counts); });
  std::vector<MatchRate> rates;
  size_t readers = 1;  // of one layer
  for (size_t r = 0; r < pass.readers().size(); r += readers) {
    const int64_t layer = pass.readers()[r].layer;
    readers = r + 1 < pass.readers().size() && pass.readers()[r + 1].layer == layer ? 2 : 1;
    for (const int64_t k : options.candidates) {
      for (size_t own = r; own < r + readers; ++own) {
        const MatchRate cell{texts.decoding, layer, k, pass.readers()[own].trained, "", 0, 0};
        add_cells(options, counts, own, cell, rates);
      }
    }
  }
  return rates;
}

std::vector<MatchRate> match_rates(const GenerationModels& models, std::span<const std::vector<int64_t>> prompts,
                                   const MatchRateOptions& options) {
  throw_problems(options, models);
  std::vector<MatchRate> rates;
  for (const MatchDecoding& decoding : options.decodings) {
    std::vector<std::vector<int64_t>> outputs;
    auto results = Generator(models, decode_options(options, decoding)).generate(prompts);
    throw_if_failed(results);
    for (auto& result : results) outputs.push_back(std::move(result.ids));
    const auto own = count_matches(models, {decoding.name, prompts, outputs}, options);
    rates.insert(rates.end(), own.begin(), own.end());
  }
  return rates;
}

}  // namespace draftsmith::infer
