#include "infer/forced/forced_alpha.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/drafters/drafter_probe.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

namespace {

struct Sums {
  QualitySums target;
  QualitySums drafter;
  double overlap = 0;
  int64_t same = 0;
  int64_t positions = 0;
};

// Logits of both models, [B,L,V]; V may differ.
struct LogitsPair {
  at::Tensor target;
  at::Tensor drafter;
};

// Adds the positions that are counted.
void add_positions(const LogitsPair& logits, const ForcedLabels& given, const Warping& warping, Sums& sums) {
  const ForcedLabels labels{given.ids.to(logits.target.device()), given.counted.to(logits.target.device())};
  const int64_t shared = std::min(logits.target.size(2), logits.drafter.size(2));
  const auto p = logits.target.narrow(2, 0, shared);
  const auto q = logits.drafter.narrow(2, 0, shared);
  const auto choice = most_likely(p);  // [B,L]
  const auto drafted = most_likely(q);
  const auto same = choice.eq(drafted) & choice.ne(kNoToken) & labels.counted;
  sums.same += same.sum().item<int64_t>();
  sums.positions += labels.counted.sum().item<int64_t>();
  sums.target.add(logits.target, choice, labels);
  sums.drafter.add(logits.drafter, drafted, labels);
  if (warping.greedy()) return;
  sums.overlap += at::where(labels.counted, overlap(warp(p, warping), warp(q, warping)), 0.0).sum().item<double>();
}

// The positions of a batch from steps that give the logits of both.
template <class Step>
void add_steps(TeacherForcing& target, const ForcedBatch& batch, const Warping& warping, Sums& sums, const Step& step) {
  const int64_t at_once = target.positions_at_once();
  for (int64_t done = 0; done < target.longest(); done += at_once) {
    const int64_t width = std::min(at_once, target.longest() - done);
    const std::vector<int64_t> valid = target.valid(width);
    const std::vector<int64_t> first(valid.size(), done);
    add_positions(step(width), labels_of(batch.outputs, first, valid, width), warping, sums);
  }
}

void add_batch(const ForcedPair& models, const ForcedBatch& batch, const Warping& warping, Sums& sums) {
  TeacherForcing target(models.target, batch);
  const auto sources = mask_unknown_ids(models.drafter.info(), batch.sources);
  const auto outputs = mask_unknown_ids(models.drafter.info(), batch.outputs);
  TeacherForcing drafter(models.drafter, {sources, outputs});
  add_steps(target, batch, warping, sums, [&](int64_t width) {
    const auto p = target.next(width);  // [B,L,V]
    return LogitsPair{p, drafter.next(width)};
  });
}

ForcedAlpha mean_of(const Sums& sums, const Warping& warping) {
  if (sums.positions == 0) return {};
  const auto positions = static_cast<double>(sums.positions);
  const double agreement = static_cast<double>(sums.same) / positions;
  return {warping.greedy() ? agreement : sums.overlap / positions, agreement, sums.positions, sums.target.mean(),
          sums.drafter.mean()};
}

// Adds one position: the target's logits [1,1,V] at the text's own token against what the drafter would put there.
void add_position(const at::Tensor& logits, int64_t label, DrafterProbe& drafter, const Warping& warping, Sums& sums) {
  ++sums.positions;
  const int64_t token = drafter.next_token();
  const at::Tensor choice = most_likely(logits);  // [1,1]
  sums.same += token != kNoProposal && token == choice.item<int64_t>() ? 1 : 0;
  const ForcedLabels labels{at::full_like(choice, label), at::ones_like(choice, at::kBool)};
  sums.target.add(logits, choice, labels);
  at::Tensor own;  // [1,1,V]
  if (drafter.gives_logits()) own = drafter.next_logits().unsqueeze(1);
  if (own.defined()) {
    sums.drafter.add(own, at::full_like(choice, token), labels);
  } else {
    sums.drafter.add(token == label);
  }
  if (warping.greedy()) return;
  const auto p = warp(logits, warping);  // [1,1,V]
  if (own.defined()) {
    sums.overlap += overlap(p, warp(own, warping)).item<double>();
  } else if (token != kNoProposal) {
    sums.overlap += p[0][0][token].item<double>();
  }
}

void add_row(model::LanguageModel& target, Drafter& drafter, const ForcedBatch& row, const Warping& warping,
             Sums& sums) {
  const model::ModelInfo& info = target.info();
  const std::vector<int64_t>& source = row.sources.front();
  const std::vector<int64_t>& output = row.outputs.front();
  TeacherForcing forcing(target, row);
  DrafterProbe probe(drafter, info, info.encoder_decoder ? source : std::vector<int64_t>{},
                     info.encoder_decoder ? std::vector<int64_t>{info.decoder_start} : source);
  const int64_t at_once = forcing.positions_at_once();
  for (int64_t done = 0; done < forcing.longest(); done += at_once) {
    const int64_t width = std::min(at_once, forcing.longest() - done);
    const auto logits = forcing.next(width);  // [1,L,V]
    for (int64_t j = 0; j < width; ++j) {
      const int64_t token = output[static_cast<size_t>(done + j)];
      add_position(logits.narrow(1, j, 1), token, probe, warping, sums);
      probe.commit(token);
    }
  }
}

// A batch of texts that a Tandem secondary drafts, block by block, as far as it is told what to draft.
class ForcedTandem {
 public:
  ForcedTandem(model::LanguageModel& target, TandemDrafter& drafter, const ForcedBatch& texts)
      : forcing_(target, texts), drafter_(drafter), outputs_(texts.outputs), rows_(texts.outputs.size()) {
    const bool encodes = target.info().encoder_decoder;
    int64_t capacity = 1;
    for (size_t b = 0; b < rows_.size(); ++b) {
      rows_[b].tokens = encodes ? std::vector<int64_t>{target.info().decoder_start} : texts.sources[b];
      rows_[b].prefix = rows_[b].length();
      capacity = std::max(capacity, rows_[b].length() + std::ssize(outputs_[b]));
    }
    const model::TokenBatch nothing;
    const DraftBegin begin{
        nothing, 1, rows_, capacity, encodes ? &forcing_.encoder() : nullptr, nullptr, forcing_.prompt_hidden()};
    drafter_.encode(begin);
    drafter_.prefill(begin);
  }

  // Adds the next `width` positions.
  void add_block(int64_t width, const Warping& warping, Sums& sums) {
    const std::vector<int64_t> valid = forcing_.valid(width);
    const model::StepOutput target = forcing_.next_output(width);
    std::vector<int64_t> first;
    for (const Row& row : rows_) first.push_back(row.emitted());
    add_positions({target.logits, draft(valid, width)}, labels_of(outputs_, first, valid, width), warping, sums);
    std::vector<int64_t> base;
    for (size_t b = 0; b < rows_.size(); ++b) {
      Row& row = rows_[b];
      base.push_back(row.length());
      const auto next = outputs_[b].begin() + row.emitted();
      row.tokens.insert(row.tokens.end(), next, next + valid[b]);
    }
    drafter_.observe({rows_, target, base});
  }

  int64_t longest() const { return forcing_.longest(); }

 private:
  // The drafter's logits [B,L,V], each row's up to valid[b].
  at::Tensor draft(std::span<const int64_t> valid, int64_t width) {
    std::vector<at::Tensor> drafted;
    std::vector<at::Tensor> logits;
    for (int64_t j = 0; j < width; ++j) {
      std::vector<int64_t> active;
      std::vector<int64_t> tokens;  // drafted at j
      for (size_t b = 0; b < rows_.size(); ++b) {
        active.push_back(j < valid[b] ? 1 : 0);
        tokens.push_back(active[b] == 0 ? 0 : outputs_[b][static_cast<size_t>(rows_[b].emitted() + j)]);
      }
      logits.push_back(drafter_.next_logits({rows_, drafted, active, {}}));
      drafted.push_back(to_device(tokens, {forcing_.rows()}, logits.back().device()));
    }
    return at::stack(logits, 1);
  }

  TeacherForcing forcing_;
  TandemDrafter& drafter_;
  std::span<const std::vector<int64_t>> outputs_;
  std::vector<Row> rows_;
};

}  // namespace

ForcedAlpha alpha_forced(const ForcedPair& models, std::span<const std::vector<int64_t>> sources,
                         std::span<const std::vector<int64_t>> outputs, const Warping& warping, int64_t batch_size) {
  const at::NoGradGuard no_grad;
  Sums sums;
  const auto rows = static_cast<size_t>(batch_size);
  for (size_t first = 0; first < sources.size(); first += rows) {
    const size_t count = std::min(rows, sources.size() - first);
    add_batch(models, {sources.subspan(first, count), outputs.subspan(first, count)}, warping, sums);
  }
  return mean_of(sums, warping);
}

ForcedAlpha alpha_forced(model::LanguageModel& target, Drafter& drafter, std::span<const std::vector<int64_t>> sources,
                         std::span<const std::vector<int64_t>> outputs, const Warping& warping) {
  const at::NoGradGuard no_grad;
  Sums sums;
  for (size_t i = 0; i < sources.size(); ++i) {
    add_row(target, drafter, {sources.subspan(i, 1), outputs.subspan(i, 1)}, warping, sums);
  }
  return mean_of(sums, warping);
}

ForcedAlpha alpha_forced_tandem(model::LanguageModel& target, model::TransformerModel& secondary,
                                const ForcedBatch& texts, const Warping& warping, int64_t block) {
  constexpr size_t kRows = 16;
  const at::NoGradGuard no_grad;
  const int64_t width = block > 0 ? block : secondary.config().tandem.block;
  TandemDrafter drafter(secondary);
  Sums sums;
  for (size_t first = 0; first < texts.sources.size(); first += kRows) {
    const size_t count = std::min(kRows, texts.sources.size() - first);
    ForcedTandem batch(
        target, drafter,
        {texts.sources.subspan(first, count), texts.outputs.subspan(first, count), drafter.target_layers()});
    for (int64_t done = 0; done < batch.longest(); done += width) {
      batch.add_block(std::min(width, batch.longest() - done), warping, sums);
    }
  }
  return mean_of(sums, warping);
}

ForcedAlpha alpha_forced_exit(const ExitDrafting& drafting, const ForcedBatch& texts, const Warping& warping) {
  constexpr size_t kRows = 16;
  const at::NoGradGuard no_grad;
  Sums sums;
  for (size_t first = 0; first < texts.sources.size(); first += kRows) {
    const size_t count = std::min(kRows, texts.sources.size() - first);
    const ForcedBatch batch{
        texts.sources.subspan(first, count), texts.outputs.subspan(first, count), {drafting.layers}};
    TeacherForcing target(drafting.model, batch);
    add_steps(target, batch, warping, sums, [&](int64_t width) {
      const model::StepOutput output = target.next_output(width);
      return LogitsPair{output.logits,
                        model::exit_logits(drafting.model, drafting.exits, drafting.layers, output.hidden.front())};
    });
  }
  return mean_of(sums, warping);
}

}  // namespace draftsmith::infer
