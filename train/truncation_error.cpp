#include "train/truncation_error.h"

#include <algorithm>
#include <set>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/signals.h"
#include "train/batch.h"
#include "train/objectives/distillation_loss.h"
#include "train/teacher_rows.h"

namespace draftsmith::train {

namespace {

constexpr int64_t kLogitsAtOnce = int64_t{1} << 22;  // fp64, several times
constexpr std::array<DivergenceKind, 4> kKinds = {
    {{Divergence::kForwardKl}, {Divergence::kReverseKl}, {Divergence::kJsd, 0.5}, {Divergence::kTotalVariation}}};
static_assert(kKinds.size() == data::kTruncationLosses.size());

// One block that was made beforehand.
class FixedBlock : public TeacherDistributions {
 public:
  explicit FixedBlock(TeacherBlock block) : block_(std::move(block)) {}
  TeacherBlock block(const at::Tensor& positions) override {
    if (block_.logits.defined()) return {.logits = block_.logits.index_select(0, positions)};
    return {.ids = block_.ids.index_select(0, positions),
            .log_probs = block_.log_probs.index_select(0, positions),
            .tail_log_mass = block_.tail_log_mass.index_select(0, positions)};
  }

 private:
  TeacherBlock block_;
};

// Every n-th example, so that about so many positions come together.
std::vector<int64_t> sampled_examples(const data::Corpus& corpus, int64_t positions) {
  const int64_t all = std::max<int64_t>(1, corpus.info().target_tokens);
  const int64_t stride = std::max<int64_t>(1, all / std::max<int64_t>(1, positions));
  std::vector<int64_t> examples;
  for (int64_t i = 0; i < corpus.size(); i += stride) examples.push_back(i);
  return examples;
}

class Measurement {
 public:
  Measurement(model::TransformerModel& teacher, model::TransformerModel& student, const TruncationSample& sample)
      : teacher_(teacher),
        student_(student),
        sample_(sample),
        weight_(head_weight(student).detach().to(at::kDouble) / sample.flattened),
        shared_(student.config(), student.vocabulary_rows(), teacher.config().vocabulary, student.info().device) {
    const int64_t vocabulary = teacher.config().vocabulary;
    for (const int64_t k : std::set<int64_t>{8, 32, 128, sample.k, vocabulary}) {
      if (k <= vocabulary) error_.rows.push_back({.k = k});
    }
  }

  void add(const std::vector<int64_t>& examples) {
    const Batch batch = make_batch(sample_.corpus, examples, teacher_.info());
    const auto teacher = LiveTeacher(teacher_).distributions(batch);
    const at::Tensor student = hidden_at_labels(student_, batch, {});
    const int64_t block = std::max<int64_t>(1, kLogitsAtOnce / teacher_.config().vocabulary);
    for (int64_t begin = 0; begin < batch.label_count(); begin += block) {
      const int64_t count = std::min(block, batch.label_count() - begin);
      const at::Tensor positions = at::arange(begin, begin + count, batch.labels.options());
      add_block(teacher->block(positions).logits, student.narrow(0, begin, count),
                batch.labels.narrow(0, begin, count));
    }
    error_.positions += batch.label_count();
  }

  data::TruncationError mean() const {
    data::TruncationError mean = error_;
    const auto positions = static_cast<double>(std::max<int64_t>(1, error_.positions));
    for (double& loss : mean.exact) loss /= positions;
    for (data::TruncationRow& row : mean.rows) {
      row.tail_mass /= positions;
      for (double& loss : row.losses) loss /= positions;
    }
    return mean;
  }

 private:
  void add_block(const at::Tensor& teacher_logits, const at::Tensor& student, const at::Tensor& labels) {
    const at::Tensor logits = teacher_logits.to(at::kDouble);  // [C,V]
    add_losses(student, labels, {.logits = logits}, error_.exact);
    for (data::TruncationRow& row : error_.rows) {
      const StoredRows stored = store_rows(logits, labels, {.k = row.k, .temperature = sample_.temperature});
      if (stored.tail_log_mass.defined())
        row.tail_mass += stored.tail_log_mass.to(at::kDouble).exp().sum().item<double>();
      add_losses(student, labels, read_rows(stored, labels, sample_.temperature), row.losses);
    }
  }

  void add_losses(const at::Tensor& student, const at::Tensor& labels, const TeacherBlock& block,
                  std::array<double, 4>& losses) const {
    const at::Tensor hidden = student.to(at::kDouble);
    FixedBlock fixed(block);
    const HeadLabels in_head = labels_in_head(student_, hidden, labels);
    const Teaching teaching{.labels = in_head.rows, .teacher = &fixed, .positions = in_head.kept, .shared = &shared_};
    for (size_t i = 0; i < kKinds.size(); ++i) {
      const DistillationTerms terms{.lambda = 0, .kind = kKinds[i], .temperature = sample_.temperature};
      losses[i] += linear_distillation(in_head.hidden, weight_, teaching, terms).item<double>();
    }
  }

  model::TransformerModel& teacher_;
  model::TransformerModel& student_;
  const TruncationSample& sample_;
  at::Tensor weight_;  // fp64 [rows,D]
  SharedRows shared_;
  data::TruncationError error_;  // sums
};

}  // namespace

data::TruncationError truncation_error(model::TransformerModel& teacher, model::TransformerModel& student,
                                       const TruncationSample& sample) {
  const at::NoGradGuard no_grad;
  Measurement measurement(teacher, student, sample);
  for (const int64_t example : sampled_examples(sample.corpus, sample.positions)) {
    throw_if_stop_requested("the measurement of the truncation error was not finished");
    measurement.add({example});
  }
  data::TruncationError error = measurement.mean();
  error.student = student.info().name;
  if (sample.flattened != 1) error.student += fmt::format(" at {} times the temperature", sample.flattened);
  return error;
}

}  // namespace draftsmith::train
