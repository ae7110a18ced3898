#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <ATen/Dispatch.h>

#include "infer/loop/decode_loop.h"
#include "infer/loop/processors.h"
#include "infer/sampling/row_kernels.h"
#include "infer/self_drafting/methods.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::infer {
namespace {

// Returns the numbers as row kernels read them: few for each token, so that other devices copy them.
at::Tensor on_host(const at::Tensor& values) {
  return promoted(values).cpu().contiguous();
}

template <class T>
double cosine(const T* a, const T* b, int64_t count) {
  double product = 0;
  double a_squared = 0;
  double b_squared = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    product += x * y;
    a_squared += x * x;
    b_squared += y * y;
  }
  return std::clamp(product / (std::sqrt(a_squared) * std::sqrt(b_squared)), -1.0, 1.0);
}

template <class T>
double margin(const T* logits, int64_t count) {
  std::array<int64_t, 2> best{};
  const int64_t found = row_top(logits, count, 2, best.data());
  const SoftmaxSums sums = row_softmax_sums(logits, count);
  if (found == 0 || !std::isfinite(sums.total)) return std::numeric_limits<double>::quiet_NaN();
  const double below = found == 1 ? 0.0 : std::exp(static_cast<double>(logits[best[1]]) - sums.highest);
  return (1 - below) / sums.total;
}

}  // namespace

std::vector<double> cosine_similarities(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = on_host(a);
  const at::Tensor y = on_host(b);
  const int64_t rows = x.size(0);
  const int64_t width = rows == 0 ? 0 : x.numel() / rows;
  std::vector<double> similarities;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "cosine similarities", [&] {
    for (int64_t b_row = 0; b_row < rows; ++b_row) {
      const int64_t first = b_row * width;
      similarities.push_back(cosine(x.const_data_ptr<scalar_t>() + first, y.const_data_ptr<scalar_t>() + first, width));
    }
  });
  return similarities;
}

std::vector<double> top_two_margins(const at::Tensor& logits) {
  const at::Tensor scores = on_host(logits);
  const int64_t width = scores.size(1);
  std::vector<double> margins;
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "top two margins", [&] {
    for (int64_t row = 0; row < scores.size(0); ++row) {
      margins.push_back(margin(scores.const_data_ptr<scalar_t>() + row * width, width));
    }
  });
  return margins;
}

namespace {

// Returns the given rows of a tensor of `total` rows; all rows cost nothing. [total,...] -> [C,...]
at::Tensor select(const at::Tensor& values, const std::vector<int64_t>& rows, int64_t total) {
  if (std::ssize(rows) == total) return values;
  return values.index_select(0, to_device(rows, {std::ssize(rows)}, values.device()));
}

// Runs one new token of every row up the layers. The hidden state of a row that has left is its input to all layers
// above, which compute only keys and values.
class Ascent {
 public:
  // `ids` as in DecodeSettings.
  Ascent(model::TransformerModel& target, const model::Exits* exits, const CalmSettings& calm, int64_t ids,
         RowBatch& batch)
      : target_(target),
        exits_(exits),
        calm_(calm),
        ids_(ids),
        batch_(batch),
        state_(dynamic_cast<model::DecoderState&>(*batch.state)),
        layers_(target.info().layers),
        left_(batch.rows.size(), 0) {
    for (Row& row : batch.rows) {
      running_.push_back(row.finished ? 0 : 1);
      thresholds_.push_back(calm_threshold(calm, row.emitted(), row.limit));
      row.stats.exits_by_layer.resize(static_cast<size_t>(layers_), 0);
    }
    step_ = state_.append(running_, 1);
  }

  // Returns logits [B,V], for each row from the layer where it left.
  at::Tensor run() {
    const at::Tensor last = last_tokens(batch_.rows, target_.info().device);
    at::Tensor hidden = target_.embed(last, step_);  // [B,1,D]
    int64_t layer = 0;
    while (any(running_)) {
      const at::Tensor below = hidden;
      hidden = run_layer(layer++, below);
      exit_finished(layer, below, hidden);
    }
    if (layer < layers_) target_.write_kv({layer, layers_}, hidden, step_, state_);
    return logits_;
  }

 private:
  int64_t rows() const { return std::ssize(left_); }

  model::StepLayout layout_of(const std::vector<int64_t>& flags) const {
    model::StepLayout layout = step_;
    layout.new_tokens = flags;
    return layout;
  }

  at::Tensor run_layer(int64_t index, const at::Tensor& below) {
    const model::LayerRange layer{index, index + 1};
    const at::Tensor above = target_.run_layers(layer, below, layout_of(running_), state_);
    if (!any(left_)) return above;
    target_.write_kv(layer, below, layout_of(left_), state_);
    const auto runs = to_device(running_, {rows(), 1, 1}, above.device()).to(at::kBool);  // [B,1,1]
    return at::where(runs, above, below);
  }

  // Returns logits of the chosen rows at a layer, [B,1,D] -> [C,V]. After the last layer the model's own head is read.
  at::Tensor read(int64_t layer, const at::Tensor& hidden, const std::vector<int64_t>& chosen) const {
    const at::Tensor own = select(hidden, chosen, rows());
    const at::Tensor logits =
        layer == layers_ ? target_.exit_head(own) : model::exit_logits(target_, exits_, layer, own);
    mask_padding(logits, ids_);
    return logits.squeeze(1);
  }

  // Removes the rows that are finished at a layer with input `below` and output `above`. Measuring copies numbers to
  // the host, so it is skipped if it decides nothing.
  void exit_finished(int64_t layer, const at::Tensor& below, const at::Tensor& above) {
    const bool last = layer == layers_;
    std::vector<int64_t> open;  // rows that may leave
    bool measured = false;
    for (size_t b = 0; b < running_.size(); ++b) {
      if (running_[b] == 0 || !(last || thresholds_[b] < 1)) continue;
      open.push_back(static_cast<int64_t>(b));
      measured = measured || (!last && thresholds_[b] > 0);
    }
    if (open.empty()) return;
    std::vector<double> measures(open.size(), std::numeric_limits<double>::infinity());
    at::Tensor logits;  // [C,V] of the open rows
    if (measured && calm_.measure == ExitMeasure::kMargin) {
      logits = read(layer, above, open);
      measures = top_two_margins(logits);
    } else if (measured) {
      if (layer == 1) measures.assign(open.size(), 0);
      if (layer > 1) measures = cosine_similarities(select(below, open, rows()), select(above, open, rows()));
    }
    std::vector<int64_t> going;   // indices in the batch
    std::vector<int64_t> places;  // indices in `open`
    for (size_t c = 0; c < open.size(); ++c) {
      const double threshold = thresholds_[static_cast<size_t>(open[c])];
      if (!(measures[c] > threshold || threshold <= 0)) continue;
      going.push_back(open[c]);
      places.push_back(static_cast<int64_t>(c));
    }
    if (going.empty()) return;
    exit_rows(layer, going, logits.defined() ? select(logits, places, std::ssize(open)) : read(layer, above, going));
  }

  void exit_rows(int64_t layer, const std::vector<int64_t>& going, const at::Tensor& logits) {
    if (std::ssize(going) == rows()) {
      logits_ = logits;
    } else {
      if (!logits_.defined()) logits_ = at::zeros({rows(), logits.size(1)}, logits.options());
      logits_.index_copy_(0, to_device(going, {std::ssize(going)}, logits.device()), logits);
    }
    for (const int64_t b : going) {
      const auto row = static_cast<size_t>(b);
      running_[row] = 0;
      left_[row] = 1;
      DecodeStats& stats = batch_.rows[row].stats;
      stats.layer_runs += layer;
      ++stats.exits_by_layer[static_cast<size_t>(layer) - 1];
    }
  }

  model::TransformerModel& target_;
  const model::Exits* exits_;
  const CalmSettings& calm_;
  int64_t ids_;
  RowBatch& batch_;
  model::DecoderState& state_;
  int64_t layers_;
  std::vector<int64_t> running_;  // [B] flags
  std::vector<int64_t> left_;     // [B] flags; finished rows are neither
  std::vector<double> thresholds_;
  model::StepLayout step_;  // all rows that are not finished
  at::Tensor logits_;
};

}  // namespace

const NamedValues<ExitMeasure>& exit_measures() {
  static const NamedValues<ExitMeasure> kMeasures(
      "exit measure", {{"saturation", ExitMeasure::kSaturation}, {"margin", ExitMeasure::kMargin}});
  return kMeasures;
}

double calm_threshold(const CalmSettings& settings, int64_t t, int64_t longest) {
  if (settings.threshold >= 1) return 1;
  if (settings.threshold <= 0) return 0;
  const double age = static_cast<double>(t) / static_cast<double>(std::max<int64_t>(longest, 1));
  return std::clamp(0.9 * settings.threshold + 0.1 * std::exp(-settings.decay * age), 0.0, 1.0);
}

void decode_calm(model::TransformerModel& target, const model::Exits* exits, const CalmSettings& calm,
                 const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer) {
  while (batch.goes_on()) {
    timer.enter(Phase::kVerify);
    const at::Tensor logits = Ascent(target, exits, calm, settings.ids, batch).run();
    const auto next = choose_next(batch, logits, settings);
    timer.enter(Phase::kOther);
    commit_next(batch, next, settings);
    batch.share_time(timer);
    batch.remove_finished();
  }
}

}  // namespace draftsmith::infer
