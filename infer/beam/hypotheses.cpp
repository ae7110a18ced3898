#include "infer/beam/hypotheses.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace draftsmith::infer {

const NamedValues<EarlyStopping>& early_stoppings() {
  static const NamedValues<EarlyStopping> kNames(
      "early stopping",
      {{"false", EarlyStopping::kFalse}, {"true", EarlyStopping::kTrue}, {"never", EarlyStopping::kNever}});
  return kNames;
}

Hypotheses::Hypotheses(const BeamSettings& settings, int64_t limit) : settings_(settings), limit_(limit) {
  if (settings.beams < 1 || limit < 1) throw std::logic_error("a beam search needs beams and room for a token");
}

double Hypotheses::scored(double sum, int64_t tokens) const {
  return sum / std::pow(static_cast<double>(tokens), settings_.length_penalty);
}

void Hypotheses::finish(const Continuation& last, std::span<const int64_t> output) {
  Hypothesis hypothesis{{output.begin(), output.end()}, 0};
  hypothesis.tokens.push_back(last.token);
  hypothesis.score = scored(last.score, std::ssize(hypothesis.tokens));
  const auto place = std::ranges::find_if(finished_, [&](const auto& one) { return one.score < hypothesis.score; });
  finished_.insert(place, std::move(hypothesis));
  if (std::ssize(finished_) > settings_.beams) finished_.pop_back();
}

bool Hypotheses::improves(double sum, int64_t tokens) const {
  const bool at_limit = settings_.early_stopping == EarlyStopping::kNever && settings_.length_penalty > 0;
  return scored(sum, at_limit ? limit_ : tokens) > finished_.back().score;
}

std::vector<Continuation> Hypotheses::advance(std::span<const Continuation> best, const std::vector<char>& ended,
                                              std::span<const std::span<const int64_t>> outputs) {
  const auto beams = static_cast<size_t>(settings_.beams);
  if (best.size() < beams || best.size() != ended.size()) throw std::logic_error("too few continuations of beams");
  std::vector<Continuation> running;
  for (size_t i = 0; i < best.size() && running.size() < beams; ++i) {
    if (ended[i] == 0) running.push_back(best[i]);
  }
  const bool all_ended = running.empty();
  for (size_t i = 0; running.size() < beams; ++i) {  // Transformers carries ended beams along
    if (ended[i] == 0) continue;
    running.push_back(best[i]);
    running.back().score += kHopeless;
  }
  // Continuations beyond the best `beams` only stand in for those that end.
  for (size_t i = 0; i < beams; ++i) {
    if (ended[i] != 0) finish(best[i], outputs[static_cast<size_t>(best[i].beam)]);
  }
  const int64_t tokens = std::ssize(outputs[static_cast<size_t>(running.front().beam)]) + 1;
  const bool full = std::ssize(finished_) == settings_.beams;
  done_ = all_ended ||
          (full && (settings_.early_stopping == EarlyStopping::kTrue || !improves(running.front().score, tokens)));
  return running;
}

}  // namespace draftsmith::infer
