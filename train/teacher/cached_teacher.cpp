#include "train/teacher/cached_teacher.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device_tensors.h"
#include "base/error.h"
#include "base/signals.h"
#include "train/trainable/trainable_model.h"
#include "train/trainer.h"

namespace draftsmith::train {
namespace {

constexpr int64_t kTeacherLogitsAtOnce = int64_t{1} << 24;
constexpr double kLeastHalf = -65504;  // a log that is smaller; its exponential is 0

at::Tensor to_half(const at::Tensor& logs) {
  return logs.clamp_min(kLeastHalf).to(at::kHalf);
}

void check_stored_form(model::TransformerModel& teacher, const data::Corpus& corpus, int64_t k) {
  const LiveTeacher with_all_ids(teacher);
  Problems problems;
  check_corpus(corpus, teacher.info(), problems);
  if (k > teacher.info().vocabulary) {
    problems.add({.where = "k",
                  .what = "more ids are to be stored than the teacher has",
                  .expected = fmt::format("at most {}, or 0: all of them", teacher.info().vocabulary),
                  .found = std::to_string(k)});
  }
  problems.throw_if_any();
}

StoredRows empty_rows(int64_t positions, int64_t k, bool whole) {
  StoredRows rows{.log_probs = at::empty({positions, k}, at::kHalf)};
  if (whole) return rows;
  rows.ids = at::empty({positions, k}, at::kInt);
  rows.label_log_probs = at::empty({positions}, at::kHalf);
  rows.tail_log_mass = at::empty({positions}, at::kHalf);
  return rows;
}

void require_finite(const at::Tensor& values, const char* what, int64_t example, const data::Corpus& corpus) {
  if (at::isfinite(values).all().item<bool>()) return;
  throw RunError({.where = corpus.file().string(),
                  .what = fmt::format("the teacher's {} are not finite", what),
                  .found = fmt::format("NaN or infinity in a batch with example {}", example),
                  .hint = "run the teacher in fp32 or bf16 (dtype)"});
}

template <class T>
std::span<const T> values_of(const at::Tensor& rows) {
  if (!rows.defined() || rows.numel() == 0) return {};
  return {static_cast<const T*>(rows.const_data_ptr()), static_cast<size_t>(rows.numel())};
}

// Copies values to row `at` of a tensor of rows.
template <class T>
void copy_into(at::Tensor& rows, int64_t at, std::span<const T> values) {
  if (values.empty()) return;
  std::memcpy(static_cast<char*>(rows.data_ptr()) + at * rows.stride(0) * static_cast<int64_t>(sizeof(T)),
              values.data(), values.size_bytes());
}

// Returns examples' states as they lie in a batch, zero at padding. [B,T,columns]
at::Tensor in_batch(const std::vector<std::span<const data::BFloat16>>& examples, const model::TokenBatch& batch,
                    int64_t columns) {
  const int64_t width = batch.tokens.size(1);
  const at::Tensor host = at::zeros({batch.tokens.size(0), width, columns}, at::kBFloat16);
  at::Tensor rows = host.view({-1, columns});
  auto next = examples.begin();
  for (size_t row = 0; row < batch.lengths.size(); ++row) {
    int64_t at = static_cast<int64_t>(row) * width;
    for (const int64_t length : batch.segments.empty() ? std::vector{batch.lengths[row]} : batch.segments[row]) {
      if (next == examples.end() || std::ssize(*next) != length * columns) {
        throw std::logic_error("a teacher cache read for tokens of another corpus");
      }
      copy_into(rows, at, *next++);
      at += length;
    }
  }
  return upload(host, batch.tokens.device());
}

// A batch's top-k rows: copied together, since they are small beside its activations, and moved once.
class TopKRows : public TeacherDistributions {
 public:
  TopKRows(const data::TeacherCache& cache, const Batch& batch) {
    const int64_t count = batch.label_count();
    const int64_t k = cache.info().k;
    StoredRows rows = empty_rows(count, k, false);
    int64_t at = 0;
    for (const int64_t example : batch.examples) {
      const data::TeacherRows stored = cache.rows(example);
      copy_into(rows.ids, at, stored.ids);
      copy_into(rows.log_probs, at, stored.log_probs);
      copy_into(rows.label_log_probs, at, stored.label_log_probs);
      copy_into(rows.tail_log_mass, at, stored.tail_log_mass);
      at += cache.positions(example);
    }
    const at::Device device = batch.labels.device();
    all_ = read_rows({.ids = upload(rows.ids, device),
                      .log_probs = upload(rows.log_probs, device),
                      .label_log_probs = upload(rows.label_log_probs, device),
                      .tail_log_mass = upload(rows.tail_log_mass, device)},
                     batch.labels, cache.info().temperature);
  }

  TeacherBlock block(const at::Tensor& positions, const at::Tensor& /*ids*/) override {
    return {.ids = all_.ids.index_select(0, positions),
            .log_probs = all_.log_probs.index_select(0, positions),
            .tail_log_mass = all_.tail_log_mass.index_select(0, positions)};
  }

 private:
  TeacherBlock all_;
};

// Whole distributions, copied from the mapped file a block at a time.
class WholeRows : public TeacherDistributions {
 public:
  WholeRows(const data::TeacherCache& cache, const Batch& batch) : cache_(cache), labels_(batch.labels) {
    for (const int64_t example : batch.examples) {
      const auto logs = cache.rows(example).log_probs;
      const auto width = static_cast<size_t>(cache.info().k);
      for (size_t first = 0; first < logs.size(); first += width) rows_.push_back(logs.subspan(first, width));
    }
  }

  TeacherBlock block(const at::Tensor& positions, const at::Tensor& ids) override {
    const at::Tensor wanted = positions.to(at::kCPU).contiguous();
    at::Tensor logs = at::empty({wanted.size(0), cache_.info().k}, at::kHalf);
    for (int64_t i = 0; i < wanted.size(0); ++i) {
      copy_into(logs, i, rows_.at(static_cast<size_t>(wanted.data_ptr<int64_t>()[i])));
    }
    const at::Tensor all = upload(logs, labels_.device());  // [C,V]
    return read_rows({.log_probs = ids.defined() ? all.index_select(1, ids) : all}, labels_, cache_.info().temperature);
  }

 private:
  const data::TeacherCache& cache_;
  at::Tensor labels_;
  std::vector<std::span<const uint16_t>> rows_;  // of each label
};

}  // namespace

StoredRows store_rows(const at::Tensor& logits, const at::Tensor& labels, const data::TeacherCacheInfo& form) {
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  at::Tensor log_probs = (form.temperature == 1 ? wide : wide / form.temperature).log_softmax(1);  // [C,V]
  if (form.k == logits.size(1)) return {.log_probs = to_half(log_probs)};
  const at::Tensor ids = std::get<0>(std::get<1>(log_probs.topk(form.k, 1)).sort(1));  // int64 [C,k]
  const at::Tensor label = labels.unsqueeze(1);                                        // [C,1]
  StoredRows rows{.ids = ids.to(at::kInt),
                  .log_probs = to_half(log_probs.gather(1, ids)),
                  .label_log_probs = to_half(log_probs.gather(1, label).squeeze(1))};
  // The bucket's mass is summed over its ids: 1 minus the others would be mostly rounding when these take nearly all.
  const double nothing = -std::numeric_limits<double>::infinity();
  log_probs.scatter_(1, ids, nothing).scatter_(1, label, nothing);
  rows.tail_log_mass = to_half(log_probs.logsumexp(1));
  return rows;
}

TeacherBlock read_rows(const StoredRows& rows, const at::Tensor& labels, double temperature) {
  const at::Tensor log_probs = rows.log_probs.to(at::kFloat);  // [C,k]
  if (!rows.ids.defined()) return {.logits = temperature == 1 ? log_probs : log_probs * temperature};
  const at::Tensor ids = rows.ids.to(at::kLong);
  const at::Tensor label = labels.unsqueeze(1);
  const at::Tensor stored = ids.eq(label).any(1, true);  // [C,1]
  return {.ids = at::cat({ids, at::where(stored, -1, label)}, 1),
          .log_probs = at::cat({log_probs, rows.label_log_probs.to(at::kFloat).unsqueeze(1)}, 1),
          .tail_log_mass = rows.tail_log_mass.to(at::kFloat)};
}

TeacherLogits::TeacherLogits(model::TransformerModel& teacher, const data::Corpus& corpus, data::TeacherCacheInfo form,
                             int64_t token_budget)
    : teacher_(teacher),
      corpus_(corpus),
      form_(std::move(form)),
      order_((check_stored_form(teacher, corpus, form_.k), corpus), {.token_budget = token_budget, .shuffle = false},
             teacher.info().encoder_decoder ? data::RowForm::kSeparate : data::RowForm::kJoined) {}

uint64_t TeacherLogits::bytes(int64_t first, int64_t last) const {
  const bool joined = !teacher_.info().encoder_decoder;
  int64_t bytes = 0;
  for (int64_t i = first; i < last; ++i) {
    const int64_t source = std::ssize(corpus_.source(i)), target = std::ssize(corpus_.target(i));
    bytes += form_.bytes_per_position() * target;
    const int64_t tokens = joined ? data::joined_length(corpus_, i) : std::max<int64_t>(1, target);
    if (form_.states.any()) bytes += 2 * (form_.states.columns() * tokens + form_.states.width * (joined ? 0 : source));
  }
  return static_cast<uint64_t>(bytes);
}

StoredRows TeacherLogits::rows(int64_t first, int64_t last, const std::function<void(int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> begins;  // of each example's positions among the rows
  int64_t positions = 0;
  for (int64_t i = first; i < last; ++i) {
    begins.push_back(positions);
    positions += static_cast<int64_t>(corpus_.target(i).size());
  }
  StoredRows all = empty_rows(positions, form_.k, form_.k == teacher_.info().vocabulary);
  if (form_.states.any()) all.states.resize(begins.size());
  for (const std::vector<int64_t>& examples : order_.of_range(first, last)) {
    std::vector<at::Tensor> places;  // of each of the batch's positions among the rows
    for (const int64_t example : examples) {
      const int64_t begin = begins[static_cast<size_t>(example - first)];
      places.push_back(at::arange(begin, begin + std::ssize(corpus_.target(example)), at::kLong));
    }
    const Batch batch = make_batch(corpus_, examples, teacher_.info());
    model::ForwardInput input = input_of(batch);
    input.hidden_layers = form_.states.layers;
    const model::ForwardOutput output = teacher_.forward(input);
    if (!all.states.empty()) add_states(output, batch, first, all);
    add_distributions(at_labels(output.hidden, batch), batch, at::cat(places), all);
    progress(batch.label_count());
  }
  return all;
}

void TeacherLogits::add_states(const model::ForwardOutput& output, const Batch& batch, int64_t first,
                               StoredRows& all) const {
  const at::Tensor decoder = at::cat(output.layers, 2).to(at::kBFloat16).cpu();  // [B,T,L*D]
  const at::Tensor encoder = output.encoder.defined() ? output.encoder.to(at::kBFloat16).cpu() : at::Tensor();
  for (size_t i = 0; i < batch.examples.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    at::Tensor states = decoder[row].narrow(0, 0, batch.decoder_input.lengths[i]).reshape({-1, form_.states.width});
    if (encoder.defined()) states = at::cat({states, encoder[row].narrow(0, 0, batch.source.lengths[i])});
    require_finite(states, "states", batch.examples[i], corpus_);
    all.states[static_cast<size_t>(batch.examples[i] - first)] = states;
  }
}

void TeacherLogits::add_distributions(const at::Tensor& hidden, const Batch& batch, const at::Tensor& places,
                                      StoredRows& all) const {
  HiddenTeacher distributions({.model = &teacher_, .hidden = hidden, .labels = batch.labels});
  const at::Tensor positions = at::arange(batch.label_count(), batch.labels.options());  // [P]
  const int64_t block = std::max<int64_t>(1, kTeacherLogitsAtOnce / teacher_.info().vocabulary);
  for (int64_t begin = 0; begin < batch.label_count(); begin += block) {
    work_point();
    const int64_t count = std::min(block, batch.label_count() - begin);
    const TeacherBlock given = distributions.block(positions.narrow(0, begin, count), {});  // logits [C,V]
    const StoredRows stored = store_rows(given.logits, batch.labels.narrow(0, begin, count), form_);
    require_finite(stored.log_probs, "logits", batch.examples.front(), corpus_);
    const auto copy = [&](const at::Tensor& values, at::Tensor& target) {
      if (target.defined()) target.index_copy_(0, places.narrow(0, begin, count), values.to(at::kCPU));
    };
    copy(stored.ids, all.ids);
    copy(stored.log_probs, all.log_probs);
    copy(stored.label_log_probs, all.label_log_probs);
    copy(stored.tail_log_mass, all.tail_log_mass);
  }
}

std::vector<data::TeacherRows> StoredRows::by_example(const data::Corpus& corpus, int64_t first, int64_t last) const {
  const data::TeacherRows all{.ids = values_of<int32_t>(ids),
                              .log_probs = values_of<uint16_t>(log_probs),
                              .label_log_probs = values_of<uint16_t>(label_log_probs),
                              .tail_log_mass = values_of<uint16_t>(tail_log_mass)};
  std::vector<data::TeacherRows> examples;
  size_t begin = 0;
  for (int64_t i = first; i < last; ++i) {
    const size_t positions = corpus.target(i).size();
    examples.push_back(all.part(begin, positions, static_cast<size_t>(log_probs.size(1))));
    begin += positions;
    if (states.empty()) continue;
    examples.back().states = values_of<data::BFloat16>(states[static_cast<size_t>(i - first)]);
  }
  return examples;
}

model::ForwardOutput stored_pass(const data::TeacherCache& cache, const Batch& batch) {
  const data::StateForm& form = cache.info().states;
  const bool joined = batch.source.lengths.empty();
  std::vector<std::span<const data::BFloat16>> decoder, encoder;
  for (size_t i = 0; i < batch.examples.size(); ++i) {
    const auto own = cache.rows(batch.examples[i]).states;
    const size_t most = joined ? own.size() : static_cast<size_t>(batch.decoder_input.lengths[i] * form.columns());
    decoder.push_back(own.first(std::min(most, own.size())));
    encoder.push_back(own.subspan(decoder.back().size()));
  }
  model::ForwardOutput output;
  output.layers = in_batch(decoder, batch.decoder_input, form.columns()).split(form.width, 2);
  if (!joined) output.encoder = in_batch(encoder, batch.source, form.width);
  return output;
}

std::optional<double> CachedTeacher::temperature() const {
  if (cache_.info().whole()) return std::nullopt;
  return cache_.info().temperature;
}

std::unique_ptr<TeacherDistributions> CachedTeacher::distributions(const Batch& batch) {
  int64_t positions = 0;
  for (const int64_t example : batch.examples) positions += cache_.positions(example);
  if (positions != batch.label_count()) throw std::logic_error("a teacher cache read for labels of another corpus");
  if (cache_.info().whole()) return std::make_unique<WholeRows>(cache_, batch);
  return std::make_unique<TopKRows>(cache_, batch);
}

}  // namespace draftsmith::train
