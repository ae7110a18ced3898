#include "infer/loop/device_loop.h"

#include <algorithm>
#include <bit>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "infer/loop/processors.h"

namespace draftsmith::infer {
namespace {

// Rounds that are launched before the verdict of an earlier one is read.
constexpr size_t kRoundsAhead = 1;

// Returns memory for a copy that the host does not wait for.
at::Tensor landing_place(const at::Tensor& values) {
  return at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(values.is_cuda()));
}

// Brings a table to the device, into the tensor that recorded work reads if there is one.
void put(const at::Tensor& host, at::Device device, at::Tensor& place) {
  if (place.defined()) {
    place.copy_(host, /*non_blocking=*/true);
  } else {
    place = host.to(device, /*non_blocking=*/true);
  }
}

// Counts a round's draft steps, counts[b] of row b. The first one also takes a token that a whole draft left behind.
void count_draft_steps(std::span<Row> rows, std::span<const int64_t> counts) {
  for (size_t b = 0; b < rows.size(); ++b) {
    Row& row = rows[b];
    row.stats.draft_runs += counts[b];
    for (int64_t j = 0; j < counts[b]; ++j) {
      const auto drafting = std::ranges::count_if(counts, [&](int64_t count) { return count > j; });
      const int64_t tokens = j == 0 && row.behind ? 2 : 1;
      row.stats.draft_steps.add(
          {.share = 1 / static_cast<double>(drafting), .before = row.length() + j - tokens, .tokens = tokens});
    }
  }
}

}  // namespace

DeviceLoop::DeviceLoop(model::LanguageModel& target, const DraftParts* parts, const DecodeSettings& settings)
    : target_(target), parts_(parts), settings_(settings), device_(target.info().device) {
  if (!drafts()) return;
  window_ = parts->window->maximum();
  keeps_probabilities_ =
      !settings.warping.greedy() && (parts->acceptance->traits().needs_distribution || settings.measure_alpha);
}

bool DeviceLoop::takes(const RowBatch& batch) {
  if (!settings_.processors.empty() || !has_round_operators(device_)) return false;
  if (!drafts()) return begin_steps(batch);
  const WindowTraits window = parts_->window->traits();
  const AcceptanceTraits acceptance = parts_->acceptance->traits();
  const bool fixed = window.constant_length && window.decides == Decides::kUpFront && window_ > 0;
  const bool judges_there = acceptance.on_device && acceptance.lossless && acceptance.target == TargetRole::kVerifies;
  return fixed && judges_there && begin_steps(batch);
}

bool DeviceLoop::begin_steps(const RowBatch& batch) {
  drafter_.reset();
  if (drafts()) {
    const auto model = parts_->drafter->drafting_model();
    if (!model || model->model.info().device != device_) return false;
    // Rounds that run there know no end of the drafter's positions.
    const auto drafts_to_its_end = [&](const Row& row) { return parts_->drafter->room(row) > row.remaining(); };
    if (!std::ranges::all_of(batch.rows, drafts_to_its_end)) return false;
    drafter_.emplace(*model);
  }
  const auto target = target_.device_places(*batch.state);
  const auto drafter = drafter_ ? drafter_->model.device_places(drafter_->state) : model::DevicePlaces{};
  if (!target || !drafter) return false;
  const std::pair memory{target->memory, drafter->memory};
  if (memory != memory_) rounds_.clear();
  memory_ = memory;
  Rounds& rounds = rounds_of(batch);
  put(target->rows, device_, rounds.target_rows);
  if (drafter_) put(drafter->rows, device_, rounds.drafter_rows);
  return true;
}

void DeviceLoop::run(RowBatch& batch, PhaseTimer& timer) {
  flights_.clear();  // of a batch that an error ended
  if (drafts()) parts_->window->begin(batch.rows);
  begin(batch, from_each(batch.rows, [](const Row& row) { return row.length() - 1; }));
  while (batch.goes_on()) {
    launch(batch, timer);
    if (flights_.size() > kRoundsAhead) land(batch);
    batch.share_time(timer);
    remove_finished(batch);
  }
}

// Starts with rows that the host knows. `drafted` [B]: tokens that the drafter's state holds.
void DeviceLoop::begin(const RowBatch& batch, std::span<const int64_t> drafted) {
  Rounds& rounds = rounds_of(batch);
  const DeviceRows host =
      device_rows(batch.rows, drafted, settings_.eos, {batch.state->capacity(), window_, !settings_.warping.greedy()});
  if (rounds.rows.take(host)) return;
  rounds.rows = host.to(device_);
  rounds.drafting.clear();
  rounds.verifying.clear();
}

void DeviceLoop::launch(RowBatch& batch, PhaseTimer& timer) {
  Rounds& rounds = rounds_of(batch);
  if (drafts()) {
    timer.enter(Phase::kDraft);
    rounds.drafting.run(device_, work_memory_, [&] { draft(rounds); });
  }
  timer.enter(Phase::kVerify);
  rounds.verifying.run(device_, work_memory_, [&] { verify(rounds, *batch.state); });
  timer.enter(Phase::kOther);
  const at::Tensor& columns = rounds.verdict.columns;
  Flight flight{landing_place(columns), c10::Event(device_.type(), c10::EventFlag::PYTORCH_DEFAULT)};
  flight.host.copy_(columns, /*non_blocking=*/true);
  flight.landed.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  flights_.push_back(std::move(flight));
}

void DeviceLoop::draft(Rounds& rounds) {
  rounds.plan = plan_round(rounds.rows, window_);
  rounds.drawn.clear();
  rounds.probabilities.clear();
  const model::ModelInfo& drafter = drafter_->model.info();
  const int64_t vocabulary = target_.info().vocabulary;
  for (int64_t j = 0; j < window_; ++j) {
    const auto step = static_cast<size_t>(j);
    const at::Tensor tokens = j == 0 ? rounds.plan.unseen : rounds.drawn.back().clamp_min(0).unsqueeze(1);
    const model::StepOutput output =
        drafter_->model.step_on_device({.tokens = known_tokens(tokens, drafter, vocabulary),
                                        .base = rounds.plan.base_of_draft[step],
                                        .new_tokens = rounds.plan.new_of_draft[step],
                                        .rows = rounds.drafter_rows,
                                        .logits = model::Logits::kLast},
                                       drafter_->state);
    rounds.drawn.push_back(draw_draft(rounds, fit_vocabulary(output.logits.select(1, 0), vocabulary), j));
  }
}

at::Tensor DeviceLoop::draw_draft(Rounds& rounds, const at::Tensor& logits, int64_t step) {
  mask_padding(logits, settings_.ids);
  if (settings_.warping.greedy()) return most_likely(logits);
  const at::Tensor q = warp(logits, settings_.warping);  // [B,V]
  if (keeps_probabilities_) rounds.probabilities.push_back(q);
  return infer::draw(q, row_uniforms(rounds.rows, Draw::kDraft, step, 1).squeeze(1));
}

void DeviceLoop::verify(Rounds& rounds, model::DecodeState& state) {
  if (!drafts()) rounds.plan = plan_round(rounds.rows, 0);
  const RoundPlan& plan = rounds.plan;
  const at::Tensor pending =
      drafts() ? at::cat({plan.last, at::stack(rounds.drawn, 1).clamp_min_(0)}, 1) : plan.last;  // [B,G+1]
  const model::StepOutput output = target_.step_on_device(
      {.tokens = pending, .base = plan.base, .new_tokens = plan.new_tokens, .rows = rounds.target_rows}, state);
  mask_padding(output.logits, settings_.ids);
  if (drafts()) {
    judge(rounds, output.logits, pending);
  } else {
    choose(rounds, output.logits.squeeze(1));
  }
}

// Plain decoding: takes a token from logits [B,V].
void DeviceLoop::choose(Rounds& rounds, const at::Tensor& logits) {
  const Warping& warping = settings_.warping;
  const at::Tensor next =
      warping.greedy() ? most_likely(logits)
                       : infer::draw(warp(logits, warping), row_uniforms(rounds.rows, Draw::kNext, 0, 1).squeeze(1));
  const at::Tensor none = rounds.plan.last.narrow(1, 0, 0);  // [B,0]
  const at::Tensor accepted = rounds.plan.counts;            // zeros: nothing was drafted
  commit_round(rounds.rows, none, rounds.plan.counts, accepted, next);
  rounds.verdict.columns = next.unsqueeze(1);
}

void DeviceLoop::judge(Rounds& rounds, const at::Tensor& logits, const at::Tensor& pending) {
  const at::Tensor drawn = at::stack(rounds.drawn, 1);  // [B,G]
  const Judgement judgement = parts_->acceptance->judge({.rows = {},
                                                         .logits = logits,
                                                         .tokens = pending.narrow(1, 1, window_),
                                                         .counts = rounds.plan.counts,
                                                         .probabilities = rounds.probabilities,
                                                         .warping = settings_.warping,
                                                         .measure_overlap = settings_.measure_alpha,
                                                         .on_device = &rounds.rows});
  rounds.verdict = pack(judgement, drawn);
  commit_round(rounds.rows, drawn, rounds.plan.counts, judgement.accepted, judgement.next);
}

void DeviceLoop::land(RowBatch& batch) {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  flight.landed.synchronize();
  if (drafts()) {
    commit_drafts(batch, flight.host);
  } else {
    commit_next(batch, to_host(flight.host), settings_);
  }
}

// Commits a round as the device has done. Rows that only the host knows to be finished, by a stop string, stay so.
void DeviceLoop::commit_drafts(RowBatch& batch, const at::Tensor& host) {
  const PackedJudgement& verdict = rounds_of(batch).verdict;
  Draft draft;
  draft.on_host.resize(batch.rows.size());
  for (Row& row : batch.rows) {
    draft.counts.push_back(row.finished ? 0 : std::max<int64_t>(0, std::min(window_, row.remaining() - 1)));
  }
  draft.steps = draft.counts;
  count_draft_steps(batch.rows, draft.counts);
  draft.set_tokens(verdict.tokens_of(host), settings_.eos);
  draft.fail_rows(batch.rows);
  commit_judgement(batch, draft, verdict.judgement_of(host), *parts_, settings_.eos);
}

void DeviceLoop::remove_finished(RowBatch& batch) {
  const auto unfinished = static_cast<uint64_t>(std::ranges::count(batch.rows, false, &Row::finished));
  // A power of two stays, since rounds are recorded for each number of rows.
  const int64_t left = unfinished == 0 ? 0 : static_cast<int64_t>(std::bit_ceil(unfinished));
  if (2 * left > std::ssize(batch.rows)) return;
  while (!flights_.empty()) land(batch);
  const DeviceRows& rows = rounds_of(batch).rows;
  const std::vector<int64_t> kept = batch.remove_finished(left);
  if (kept.empty()) return;
  std::vector<int64_t> drafted = to_host(rows.drafted);
  keep_rows(drafted, kept);
  if (drafts()) {
    parts_->drafter->select_rows(kept);
    parts_->window->select_rows(kept);
  }
  begin_steps(batch);
  begin(batch, drafted);
}

}  // namespace draftsmith::infer
