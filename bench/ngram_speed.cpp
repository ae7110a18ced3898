// Microseconds a draft of the drafters without weights costs at batch 1 and a vocabulary of 32,128: what is asked for
// is less than 5. A trigram and a bigram table of 2 million tokens, looked up in contexts of texts that they have not
// seen; prompt look-up in prompts of 1,000 and 20,000 tokens; then all of drafting inside the decode loop, which takes
// a target whose steps take no time: (time with windows of 17 - time with windows of 1) / 16, and at temperature 1 the
// distribution that sampling needs.
//
//   OMP_NUM_THREADS=1 build/release/bench/bench_ngram_speed
#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/aten.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/random.h"
#include "base/timing.h"
#include "data/corpus/corpus.h"
#include "data/ngrams/ngram_table.h"
#include "infer/drafters/ngram_drafter.h"
#include "infer/drafters/prompt_lookup_drafter.h"
#include "infer/generator.h"
#include "infer/sampling/sampling.h"

namespace {

using namespace draftsmith;
using namespace draftsmith::infer;

constexpr int64_t kVocabulary = 32128;
constexpr int64_t kWindow = 5;

// Token i of a text: Zipf's law, and each token suggests the next, so that n-grams repeat as in language.
int64_t next_token(int64_t last, const CounterRandom& random, uint64_t i) {
  const double u = static_cast<double>(random.bits(i) >> 11) * 0x1p-53;
  const auto rank = static_cast<int64_t>(std::pow(static_cast<double>(kVocabulary - 2), u));
  return 2 + (last * 7919 + rank * 31) % (kVocabulary - 2);
}

std::vector<int64_t> made_text(uint64_t seed, int64_t length) {
  const CounterRandom random(seed, 0);
  std::vector<int64_t> text;
  int64_t last = 2;
  for (int64_t i = 0; i < length; ++i) {
    // Every other token is of its own, so that contexts are not all rare.
    last = next_token(i % 2 == 0 ? last : 0, random, static_cast<uint64_t>(i));
    text.push_back(last);
  }
  return text;
}

data::NgramTable make_table(int64_t order) {
  constexpr int64_t kRow = 50;
  const TemporaryDirectory folder;
  data::CorpusWriter corpus(folder / "c.h5", {.tokenizer_hash = "none", .vocabulary = kVocabulary});
  for (uint64_t row = 0; row < 40000; ++row) {
    const auto text = made_text(row + 10, kRow);
    corpus.add({}, std::vector<int32_t>(text.begin(), text.end()));
  }
  corpus.finish();
  Stopwatch watch;
  const auto report = data::build_ngram_table(folder / "c.h5", {.order = order}, folder / "n.h5");
  const double seconds = watch.restart();
  data::NgramTable table(folder / "n.h5");
  fmt::print("order {}: {}; counted in {:.2f} s, opened and checked in {:.3f} s\n", order, report.text(), seconds,
             watch.seconds());
  return table;
}

// A row that begins with `prompt` and goes on with tokens of `text`.
class Rows {
 public:
  Rows(Drafter& drafter, std::vector<int64_t> prompt) : drafter_(drafter), rows_(1), active_{1}, drafted_(1) {
    rows_[0].tokens = std::move(prompt);
    const model::TokenBatch sources;
    const DraftBegin begin{sources, 1, rows_, 0, nullptr, nullptr};
    drafter_.prefill(begin);
  }
  DraftRequest request() { return {rows_, {}, active_, drafted_}; }
  void draft(int64_t token) { drafted_[0].push_back(token); }
  void commit(int64_t token) {
    drafted_[0].clear();
    const std::vector<int64_t> base = {rows_[0].length()};
    rows_[0].tokens.push_back(token);
    drafter_.observe({rows_, model::StepOutput{}, base});
  }

 private:
  Drafter& drafter_;
  std::vector<Row> rows_;
  std::vector<int64_t> active_;
  std::vector<std::vector<int64_t>> drafted_;
};

// Mean of one next_tokens(), windows of kWindow after each of many committed tokens; observe() is counted in.
void measure_proposals(const std::string& name, Drafter& drafter, const std::vector<int64_t>& prompt) {
  constexpr int64_t kCommitted = 4000;
  const auto text = made_text(3, kCommitted);
  Rows rows(drafter, prompt);
  int64_t drafts = 0;
  int64_t proposed = 0;
  const Stopwatch watch;
  for (const int64_t token : text) {
    for (int64_t j = 0; j < kWindow; ++j) {
      const int64_t next = drafter.next_tokens(rows.request())->front();
      ++drafts;
      if (next == kNoProposal) break;
      ++proposed;
      rows.draft(next);
    }
    rows.commit(token);
  }
  fmt::print("  {:<44} {:8.3f} us a draft ({} of {} proposed)\n", name,
             watch.seconds() / static_cast<double>(drafts) * 1e6, proposed, drafts);
}

void measure_distribution(Drafter& drafter) {
  constexpr int64_t kCommitted = 300;
  Rows rows(drafter, {2, 3});
  double logits_seconds = 0;
  double sampling_seconds = 0;
  const auto chance = at::full({1}, 0.7, at::kDouble);
  for (const int64_t token : made_text(3, kCommitted)) {
    Stopwatch watch;
    const auto logits = drafter.next_logits(rows.request());
    logits_seconds += watch.restart();
    draw(warp(logits, {}), chance);
    sampling_seconds += watch.seconds();
    rows.commit(token);
  }
  fmt::print("  {:<44} {:8.3f} us a draft, and {:.3f} us to sample from it\n", "distribution over V, T=1",
             logits_seconds / kCommitted * 1e6, sampling_seconds / kCommitted * 1e6);
}

// A target that takes no time: a text of its own whatever is drafted, so that next to nothing is accepted.
class NullTarget : public model::LanguageModel {
 public:
  NullTarget() : text_(made_text(9, 4096)), logits_(at::zeros({1, 64, kVocabulary})) {
    info_.vocabulary = kVocabulary;
    info_.eos = {1};
    info_.encoder_decoder = false;
  }
  const model::ModelInfo& info() const override { return info_; }
  model::EncoderStates encode(const model::TokenBatch&) override { return {}; }
  std::unique_ptr<model::DecodeState> begin(const model::EncoderStates&, int64_t capacity, int64_t) override {
    return begin(1, capacity);
  }
  std::unique_ptr<model::DecodeState> begin(int64_t, int64_t capacity) override {
    return std::make_unique<State>(capacity);
  }
  model::StepOutput step(const model::StepInput& input, model::DecodeState&) override {
    if (input.logits == model::Logits::kNone) return {};
    auto* first = logits_.mutable_data_ptr<float>();
    first[text_[done_ % text_.size()]] = 0;
    first[text_[++done_ % text_.size()]] = 9;
    return {logits_.narrow(1, 0, input.tokens.size(1)), {}};
  }

 private:
  struct State : model::DecodeState {
    explicit State(int64_t most) : room(most) {}
    int64_t rows() const override { return 1; }
    int64_t capacity() const override { return room; }
    int64_t length(int64_t) const override { return 0; }
    void rollback(std::span<const int64_t>) override {}
    void select_rows(std::span<const int64_t>) override {}
    int64_t room;
  };

  model::ModelInfo info_;
  std::vector<int64_t> text_;
  size_t done_ = 0;
  at::Tensor logits_;  // [1,64,V]
};

// Microseconds of a round of the loop with a fixed window, the best of some runs, and drafts a round.
std::pair<double, double> round_cost(const GenerationModels& models, double temperature, int64_t window) {
  DecodeOptions options;
  options.method = "speculative";
  options.temperature = temperature;
  options.window = window;
  options.max_new_tokens = 400;
  Generator generator(models, options);
  const std::vector<std::vector<int64_t>> prompts = {made_text(5, 200)};
  double best = 1;
  DecodeStats stats;
  for (int i = 0; i < 5; ++i) {
    const Stopwatch watch;
    stats = generator.generate(prompts)[0].stats;
    best = std::min(best, watch.seconds());
  }
  const auto runs = static_cast<double>(stats.target_runs);
  return {best / runs * 1e6, static_cast<double>(stats.drafted) / runs};
}

void measure_in_loop(const std::string& name, const GenerationModels& models, double temperature) {
  const auto [short_round, short_drafts] = round_cost(models, temperature, 1);
  const auto [long_round, long_drafts] = round_cost(models, temperature, 17);
  fmt::print("  {:<44} {:8.3f} us a draft ({:.1f} drafts a round of {:.1f} us)\n", name,
             (long_round - short_round) / (long_drafts - short_drafts), long_drafts, long_round);
}

}  // namespace

int main() {
  keep_freed_memory();
  const data::NgramTable bigrams = make_table(2);
  const data::NgramTable trigrams = make_table(3);
  NullTarget target;
  GenerationModels models;
  models.target = &target;
  for (const data::NgramTable* table : {&bigrams, &trigrams}) {
    fmt::print("n-gram table of order {}\n", table->info().order);
    NgramDrafter drafter(table->counts(), kVocabulary, at::kCPU);
    measure_proposals("the drafter alone, greedy", drafter, {2, 3});
    models.drafter = as_drafter(std::shared_ptr<const data::NgramTable>(table, [](const auto*) {}));
    measure_in_loop("in the loop, greedy", models, 0);
    measure_distribution(drafter);
  }
  models.drafter = lookup_drafter(4);
  for (const int64_t length : {1000, 20000}) {
    fmt::print("look-up, prompt of {} tokens\n", length);
    PromptLookupDrafter drafter(4);
    measure_proposals("the drafter alone", drafter, made_text(2, length));
  }
  measure_in_loop("in the loop, greedy", models, 0);
  measure_in_loop("in the loop, T=1", models, 1);
  return 0;
}
