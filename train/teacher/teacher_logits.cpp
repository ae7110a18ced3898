#include "train/teacher/teacher_logits.h"

#include <algorithm>
#include <span>
#include <string>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/error.h"
#include "train/batch.h"
#include "train/trainer_checks.h"

namespace draftsmith::train {

namespace {

constexpr int64_t kTeacherLogitsAtOnce = int64_t{1} << 24;

void check(const model::TransformerModel& teacher, const data::Corpus& corpus, const StoredForm& form) {
  Problems problems;
  check_corpus(corpus, teacher.info(), problems);
  if (form.k > teacher.info().vocabulary) {
    problems.add({.where = "k",
                  .what = "more ids are to be stored than the teacher has",
                  .expected = fmt::format("at most {}, or 0: all of them", teacher.info().vocabulary),
                  .found = std::to_string(form.k)});
  }
  problems.throw_if_any();
}

StoredRows empty_rows(int64_t positions, const StoredForm& form, bool whole) {
  StoredRows rows{.log_probs = at::empty({positions, form.k}, at::kHalf)};
  if (whole) return rows;
  rows.ids = at::empty({positions, form.k}, at::kInt);
  rows.label_log_probs = at::empty({positions}, at::kHalf);
  rows.tail_log_mass = at::empty({positions}, at::kHalf);
  return rows;
}

// Copies rows [from, from + count) of a block to place `to`.
void copy_rows(const StoredRows& block, int64_t from, int64_t count, StoredRows& all, int64_t to) {
  const auto copy = [&](const at::Tensor& source, at::Tensor& target) {
    if (target.defined()) target.narrow(0, to, count).copy_(source.narrow(0, from, count));
  };
  copy(block.ids, all.ids);
  copy(block.log_probs, all.log_probs);
  copy(block.label_log_probs, all.label_log_probs);
  copy(block.tail_log_mass, all.tail_log_mass);
}

template <class T>
std::span<const T> values(const at::Tensor& rows, int64_t first, int64_t count) {
  if (!rows.defined() || count == 0) return {};
  const int64_t columns = rows.dim() == 1 ? 1 : rows.size(1);
  return {static_cast<const T*>(rows.const_data_ptr()) + first * columns, static_cast<size_t>(count * columns)};
}

void require_finite(const StoredRows& rows, const std::vector<int64_t>& examples, const data::Corpus& corpus) {
  if (!at::isnan(rows.log_probs).any().item<bool>()) return;
  throw RunError({.where = corpus.file().string(),
                  .what = "the teacher's logits are not finite",
                  .found = fmt::format("NaN or infinity in a batch with example {}", examples.front()),
                  .hint = "run the teacher in fp32 or bf16 (dtype)"});
}

}  // namespace

TeacherLogits::TeacherLogits(model::TransformerModel& teacher, const data::Corpus& corpus, const StoredForm& form,
                             int64_t token_budget)
    : teacher_(teacher),
      info_(teacher.info()),
      corpus_(corpus),
      form_(form),
      order_((check(teacher, corpus, form), corpus), {.token_budget = token_budget, .shuffle = false},
             teacher.info().encoder_decoder ? data::RowForm::kSeparate : data::RowForm::kJoined) {}

StoredRows TeacherLogits::rows(int64_t first, int64_t last, const std::function<void(int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> places;  // of each example's first position among the rows
  int64_t positions = 0;
  for (int64_t i = first; i < last; ++i) {
    places.push_back(positions);
    positions += static_cast<int64_t>(corpus_.target(i).size());
  }
  StoredRows all = empty_rows(positions, form_, form_.k == info_.vocabulary);
  for (const std::vector<int64_t>& examples : order_.of_range(first, last)) {
    std::vector<int64_t> batch_places;
    int64_t count = 0;
    for (const int64_t example : examples) {
      batch_places.push_back(places[static_cast<size_t>(example - first)]);
      count += static_cast<int64_t>(corpus_.target(example).size());
    }
    add_batch(examples, batch_places, all);
    progress(count);
  }
  return all;
}

void TeacherLogits::add_batch(const std::vector<int64_t>& examples, const std::vector<int64_t>& places,
                              StoredRows& all) {
  const Batch batch = make_batch(corpus_, examples, info_);
  const auto distributions = teacher_.distributions(batch);
  const at::Tensor positions = at::arange(batch.label_count(), batch.labels.options());  // [P]
  StoredRows rows = empty_rows(batch.label_count(), form_, !all.ids.defined());
  const int64_t block = std::max<int64_t>(1, kTeacherLogitsAtOnce / info_.vocabulary);
  for (int64_t begin = 0; begin < batch.label_count(); begin += block) {
    const int64_t count = std::min(block, batch.label_count() - begin);
    const TeacherBlock given = distributions->block(positions.narrow(0, begin, count));  // logits [C,V]
    const StoredRows stored = store_rows(given.logits, batch.labels.narrow(0, begin, count), form_);
    require_finite(stored, examples, corpus_);
    copy_rows(stored, 0, count, rows, begin);
  }
  int64_t from = 0;
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto count = static_cast<int64_t>(corpus_.target(examples[i]).size());
    copy_rows(rows, from, count, all, places[i]);
    from += count;
  }
}

std::vector<data::TeacherRows> by_example(const StoredRows& rows, const data::Corpus& corpus, int64_t first,
                                          int64_t last) {
  std::vector<data::TeacherRows> examples;
  int64_t at = 0;
  for (int64_t i = first; i < last; ++i) {
    const auto count = static_cast<int64_t>(corpus.target(i).size());
    examples.push_back({.ids = values<int32_t>(rows.ids, at, count),
                        .log_probs = values<uint16_t>(rows.log_probs, at, count),
                        .label_log_probs = values<uint16_t>(rows.label_log_probs, at, count),
                        .tail_log_mass = values<uint16_t>(rows.tail_log_mass, at, count)});
    at += count;
  }
  return examples;
}

}  // namespace draftsmith::train
