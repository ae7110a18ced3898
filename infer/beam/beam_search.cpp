#include "infer/beam/beam_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/device_tensors.h"
#include "infer/beam/continuations.h"

namespace draftsmith::infer {
namespace {

constexpr int64_t kUsualBeams = 4;

// Source whose search is running.
struct Search {
  Hypotheses hypotheses;
  size_t output = 0;   // index of the source's first result
  DecodeStats stats;   // of the whole search
  bool ended = false;  // its outputs are finished, or it failed
};

class BeamLoop {
 public:
  BeamLoop(model::LanguageModel& target, const BeamSettings& beams, const DecodeSettings& settings, RowBatch& batch,
           PhaseTimer& timer)
      : target_(target), beams_(beams), settings_(settings), batch_(batch), timer_(timer) {
    for (size_t first = 0; first < batch.rows.size(); first += width()) {
      Search& search =
          searches_.emplace_back(Search{Hypotheses(beams, batch.rows[first].limit), batch.rows[first].output, {}});
      for (size_t row = first; row < first + width(); ++row) search.stats.seconds += batch.rows[row].stats.seconds;
      scores_.push_back(0);
      scores_.insert(scores_.end(), width() - 1, kHopeless);
    }
    // At most `beams` continuations end by each EOS, so that as many are left to go on.
    wanted_ = std::max<int64_t>(2, 1 + std::ssize(settings.eos)) * beams.beams;
  }

  void run() {
    while (!batch_.rows.empty()) {
      timer_.enter(Phase::kVerify);
      const std::vector<Continuation> best = best_of_step();
      timer_.enter(Phase::kOther);
      std::vector<int64_t> parents(batch_.rows.size());
      const auto count = best.size() / searches_.size();
      for (size_t s = 0; s < searches_.size(); ++s) advance(s, std::span(best).subspan(s * count, count), parents);
      leave(parents);
    }
  }

 private:
  size_t width() const { return static_cast<size_t>(beams_.beams); }
  std::span<Row> rows_of(size_t search) { return std::span(batch_.rows).subspan(search * width(), width()); }

  // Runs the target once over all beams. Returns the best continuations of each source.
  std::vector<Continuation> best_of_step() {
    model::StepInput input;
    input.logits = model::Logits::kLast;
    input.new_tokens.assign(batch_.rows.size(), 1);
    input.tokens = last_tokens(batch_.rows, target_.info().device);                  // [R,1]
    const at::Tensor logits = target_.step(input, *batch_.state).logits.squeeze(1);  // [R,V]
    const bool wide = logits.scalar_type() == at::kDouble;
    // Transformers' processors change log-probabilities here, not logits.
    const at::Tensor log_probs = at::log_softmax(logits, 1, wide ? at::kDouble : at::kFloat);
    settings_.process(log_probs, {batch_.rows});
    return best_continuations(log_probs, scores_, beams_.beams, std::min(wanted_, beams_.beams * log_probs.size(1)));
  }

  // Takes a step's best continuations of a source. parents[row]: the former row whose tokens the row now continues.
  void advance(size_t s, std::span<const Continuation> best, std::vector<int64_t>& parents) {
    Search& search = searches_[s];
    ++search.stats.target_runs;
    search.stats.target_tokens += beams_.beams;
    const std::span<Row> rows = rows_of(s);
    if (rows.front().fails(std::isnan(best.front().score) ? kNoToken : 0, rows.front().emitted(), "target")) {
      search.ended = true;
      return;
    }
    std::vector<std::span<const int64_t>> outputs;
    for (const Row& row : rows) outputs.push_back(std::span(row.tokens).subspan(static_cast<size_t>(row.prefix)));
    std::vector<char> ended;
    for (const Continuation& one : best) ended.push_back(ends(rows[static_cast<size_t>(one.beam)], one.token) ? 1 : 0);
    const std::vector<Continuation> running = search.hypotheses.advance(best, ended, outputs);
    search.ended = search.hypotheses.done();
    if (!search.ended) go_on(s, running, parents);
  }

  // Returns whether a token ends the output of a running beam.
  bool ends(const Row& row, int64_t token) const {
    if (row.remaining() == 1 || std::ranges::find(settings_.eos, token) != settings_.eos.end()) return true;
    return row.stops && StopStringMatcher(*row.stops).add(token);
  }

  // Gives the rows of a source the tokens of its continuations.
  void go_on(size_t s, std::span<const Continuation> running, std::vector<int64_t>& parents) {
    const std::span<Row> rows = rows_of(s);
    std::vector<std::vector<int64_t>> tokens;
    std::vector<std::shared_ptr<StopStringMatcher>> stops;
    for (const Continuation& one : running) {
      const Row& parent = rows[static_cast<size_t>(one.beam)];
      tokens.push_back(parent.tokens);
      tokens.back().push_back(one.token);
      stops.push_back(parent.stops ? std::make_shared<StopStringMatcher>(*parent.stops) : nullptr);
      if (parent.stops) stops.back()->add(one.token);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].tokens = std::move(tokens[i]);
      rows[i].stops = std::move(stops[i]);
      scores_[s * width() + i] = running[i].score;
      parents[s * width() + i] = static_cast<int64_t>(s * width()) + running[i].beam;
    }
  }

  // Moves the sources whose search has ended out of the batch, and lets the state follow the beams.
  void leave(std::span<const int64_t> parents) {
    if (std::ranges::any_of(searches_, &Search::ended)) share_time();
    std::vector<Search> searches;
    std::vector<Row> rows;
    std::vector<double> scores;
    std::vector<int64_t> kept;
    for (size_t s = 0; s < searches_.size(); ++s) {
      if (searches_[s].ended) {
        finish(s);
        continue;
      }
      searches.push_back(std::move(searches_[s]));
      for (size_t row = s * width(); row < (s + 1) * width(); ++row) {
        rows.push_back(std::move(batch_.rows[row]));
        scores.push_back(scores_[row]);
        kept.push_back(parents[row]);
      }
    }
    const bool same =
        kept.size() == parents.size() && std::ranges::is_sorted(kept) && std::ranges::adjacent_find(kept) == kept.end();
    searches_ = std::move(searches);
    batch_.rows = std::move(rows);
    scores_ = std::move(scores);
    if (!kept.empty() && !same) batch_.state->select_rows(kept);
  }

  // Divides the time since the last call equally among the sources in the batch.
  void share_time() {
    const PhaseSeconds part = timer_.lap().scaled(1.0 / static_cast<double>(searches_.size()));
    for (Search& search : searches_) search.stats.seconds += part;
  }

  // Makes the finished rows of a source.
  void finish(size_t s) {
    Search& search = searches_[s];
    const std::span<Row> rows = rows_of(s);
    std::vector<Hypothesis> found = search.hypotheses.finished();
    // Where stop strings ended every continuation, running beams stand in for outputs that are missing.
    for (size_t i = 0; i < rows.size() && std::ssize(found) < beams_.outputs; ++i) {
      const std::vector<int64_t>& tokens = rows[i].tokens;
      found.push_back({{tokens.begin() + rows[i].prefix, tokens.end()}, kHopeless});
    }
    for (int64_t i = 0; i < beams_.outputs; ++i) {
      Row row = rows.front();
      row.output = search.output + static_cast<size_t>(i);
      row.finished = true;
      row.stats = i == 0 ? std::move(search.stats) : DecodeStats{};
      if (!row.failure) {
        Hypothesis& best = found[static_cast<size_t>(i)];
        row.tokens.resize(static_cast<size_t>(row.prefix));
        row.tokens.insert(row.tokens.end(), best.tokens.begin(), best.tokens.end());
        row.score = best.score;
        row.stats.emitted = row.emitted();
      }
      if (row.failure && batch_.on_tokens) batch_.on_tokens(row.output, {}, true);
      if (!row.failure) batch_.notify(row, row.prefix);
      batch_.finished.push_back(std::move(row));
    }
  }

  model::LanguageModel& target_;
  const BeamSettings& beams_;
  const DecodeSettings& settings_;
  RowBatch& batch_;
  PhaseTimer& timer_;
  std::vector<Search> searches_;
  std::vector<double> scores_;  // log-probabilities of the beams so far, by row
  int64_t wanted_ = 0;          // continuations of a source that are looked at in a step
};

}  // namespace

BeamSettings beam_settings(const DecodeOptions& options, const model::GenerationConfig& generation) {
  BeamSettings settings;
  settings.beams = options.num_beams.value_or(generation.num_beams > 1 ? generation.num_beams : kUsualBeams);
  settings.length_penalty = options.length_penalty.value_or(generation.length_penalty);
  settings.early_stopping =
      early_stoppings().at(options.early_stopping.empty() ? generation.early_stopping : options.early_stopping);
  settings.outputs = options.n_best;
  if (settings.outputs > settings.beams) {
    throw UserError({.where = "n_best",
                     .what = "beam search gives at most as many outputs as it has beams",
                     .expected = fmt::format("at most num_beams = {}", settings.beams),
                     .found = std::to_string(settings.outputs),
                     .hint = "raise num_beams"});
  }
  return settings;
}

void decode_beams(model::LanguageModel& target, const BeamSettings& beams, const DecodeSettings& settings,
                  RowBatch& batch, PhaseTimer& timer) {
  BeamLoop(target, beams, settings, batch, timer).run();
}

}  // namespace draftsmith::infer
