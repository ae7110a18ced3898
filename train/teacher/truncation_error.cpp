#include "train/teacher/truncation_error.h"

#include <algorithm>
#include <set>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "train/batch.h"
#include "train/objectives/distillation_loss.h"
#include "train/teacher/teacher_rows.h"

namespace draftsmith::train {

namespace {

constexpr int64_t kErrorLogitsAtOnce = int64_t{1} << 22;  // fp64, several times
constexpr std::array<DivergenceKind, 4> kKinds = {
    {{Divergence::kForwardKl}, {Divergence::kReverseKl}, {Divergence::kJsd, 0.5}, {Divergence::kTotalVariation}}};
static_assert(kKinds.size() == data::kTruncationLosses.size());

// Returns every n-th example, so that they have about as many positions as wanted.
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
        weight_(model::head_weight(student).detach().to(at::kDouble) / sample.flattened),
        shared_(student.config(), teacher.config().vocabulary, student.info().device) {
    require_measurable(teacher.config(), student.config(), student.info().name);
    const int64_t vocabulary = teacher.config().vocabulary;
    for (const int64_t k : std::set<int64_t>{8, 32, 128, sample.k, vocabulary}) {
      if (k <= vocabulary) error_.rows.push_back({.k = k});
    }
  }

  void add(const std::vector<int64_t>& examples) {
    const Batch batch = make_batch(sample_.corpus, examples, teacher_.info());
    const auto teacher = LiveTeacher(teacher_).distributions(batch);
    const at::Tensor student = hidden_at_labels(student_, batch, {});
    const int64_t block = std::max<int64_t>(1, kErrorLogitsAtOnce / teacher_.config().vocabulary);
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
    const at::Tensor logits = teacher_logits.to(at::kDouble);                          // [C,V]
    const at::Tensor own = student.to(at::kDouble).mm(weight_.t());                    // [C,rows]
    const at::Tensor shared = own.narrow(1, 0, shared_.shared) / sample_.temperature;  // [C,n]
    const at::Tensor log_q = shared.log_softmax(1);
    add_losses(log_q, {.logits = logits}, error_.exact);
    for (data::TruncationRow& row : error_.rows) {
      const StoredRows stored = store_rows(logits, labels, {.k = row.k, .temperature = sample_.temperature});
      if (stored.tail_log_mass.defined())
        row.tail_mass += stored.tail_log_mass.to(at::kDouble).exp().sum().item<double>();
      add_losses(log_q, read_rows(stored, labels, sample_.temperature), row.losses);
    }
  }

  void add_losses(const at::Tensor& log_q, const TeacherBlock& block, std::array<double, 4>& losses) const {
    for (size_t i = 0; i < kKinds.size(); ++i) {
      const DistillationTerms terms{.lambda = 0, .kind = kKinds[i], .temperature = sample_.temperature};
      const double sum = divergence_sum(log_q, block, shared_, terms).item<double>();
      losses[i] += sum * sample_.temperature * sample_.temperature;
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

void require_measurable(const model::TransformerConfig& teacher, const model::TransformerConfig& student,
                        const std::string& name) {
  const SharedRows shared(student, teacher.vocabulary);
  if (!shared.lacks) return;
  throw UserError({.where = "student " + name,
                   .what =
                       "it lacks ids of the teacher, so it cannot learn from caches of some ids, whose error was to "
                       "be measured",
                   .expected = fmt::format("a student with all {} ids", teacher.vocabulary),
                   .found = fmt::format("{} of them", shared.shared),
                   .hint = "name another student, or set measured_positions = 0"});
}

data::TruncationError truncation_error(model::TransformerModel& teacher, model::TransformerModel& student,
                                       const TruncationSample& sample) {
  const at::NoGradGuard no_grad;
  Measurement measurement(teacher, student, sample);
  const std::vector<int64_t> examples = sampled_examples(sample.corpus, sample.positions);
  Progress progress({.style = sample.progress,
                     .title = "truncation error",
                     .unit = "examples",
                     .total = static_cast<int64_t>(examples.size())});
  for (const int64_t example : examples) {
    throw_if_stop_requested("the measurement of the truncation error was not finished");
    measurement.add({example});
    progress.advance(1);
  }
  progress.finish();
  data::TruncationError error = measurement.mean();
  error.student = student.info().name;
  if (sample.flattened != 1) error.student += fmt::format(" at {} times the temperature", sample.flattened);
  return error;
}

}  // namespace draftsmith::train
