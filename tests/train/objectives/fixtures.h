// What the tests of losses share: losses over one head, divergences of every kind, teachers made of tables, a student's
// head with labels, and the definitions written out with plain loops.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "train/objectives/linear_loss.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

inline at::Tensor linear_distillation(const at::Tensor& hidden, const at::Tensor& weight, const Targets& targets,
                                      TeacherDistributions& teacher, const SharedRows& shared,
                                      const DistillOptions& options) {
  return linear_loss(
      {{.hidden = hidden, .head = {weight}, .loss = distillation_loss(targets, teacher, shared, options)}});
}

inline constexpr int64_t kWidth = 5;

// The divergences whose slopes finite differences show, lambda 0.
inline std::vector<DistillOptions> kinds() {
  return {{.lambda = 0, .divergence = "forward_kl"}, {.lambda = 0, .divergence = "reverse_kl"},
          {.lambda = 0, .divergence = "jsd"},        {.lambda = 0, .divergence = "jsd", .beta = 0.1},
          {.lambda = 0, .divergence = "tv"},         {.lambda = 0, .divergence = "nla"}};
}

inline std::string label_of(const DistillOptions& options) {
  return options.divergence + " beta " + std::to_string(options.beta) + " T " + std::to_string(options.temperature) +
         " lambda " + std::to_string(options.lambda);
}

inline std::vector<DistillOptions> all_options(double label_smoothing) {
  std::vector<DistillOptions> all;
  for (DistillOptions options : kinds()) {
    options.label_smoothing = label_smoothing;
    for (const double temperature : {1.0, 2.5}) {
      for (const double lambda : {0.0, 0.3, 1.0}) {
        options.temperature = temperature;
        options.lambda = lambda;
        all.push_back(options);
      }
    }
  }
  return all;
}

// A teacher that gives logits [P,V].
class TableTeacher : public TeacherDistributions {
 public:
  explicit TableTeacher(at::Tensor logits) : logits_(std::move(logits)) {}
  TeacherBlock block(const at::Tensor& positions, const at::Tensor& ids) override {
    ++blocks;
    const at::Tensor all = logits_.index_select(0, positions);
    return {.logits = ids.defined() ? all.index_select(1, ids) : all};
  }
  int64_t blocks = 0;

 private:
  at::Tensor logits_;
};

// A teacher of prepared blocks.
class GivenTeacher : public TeacherDistributions {
 public:
  explicit GivenTeacher(TeacherBlock all) : all_(std::move(all)) {}
  TeacherBlock block(const at::Tensor& positions, const at::Tensor& /*ids*/) override {
    return {.ids = all_.ids.index_select(0, positions),
            .log_probs = all_.log_probs.index_select(0, positions),
            .tail_log_mass = all_.tail_log_mass.index_select(0, positions)};
  }

 private:
  TeacherBlock all_;
};

// A teacher that gives the k most likely ids and the label at a temperature; an unused place where that is among them.
inline GivenTeacher top_k_teacher(const at::Tensor& logits, const at::Tensor& labels, int64_t k, double temperature) {
  const at::Tensor log_probs = (logits / temperature).log_softmax(1);
  const auto [top, ids] = log_probs.topk(k, 1);
  const at::Tensor label = labels.unsqueeze(1);
  const at::Tensor among = ids.eq(label).any(1, true);
  return GivenTeacher({.ids = at::cat({ids, at::where(among, at::full_like(label, -1), label)}, 1),
                       .log_probs = at::cat({top, log_probs.gather(1, label)}, 1),
                       .tail_log_mass = log_probs.exp().scatter(1, at::cat({ids, label}, 1), 0).sum(1).log()});
}

inline model::TransformerConfig ids_config(int64_t vocabulary, std::vector<int64_t> kept = {}) {
  model::TransformerConfig config{.vocabulary = vocabulary};
  config.draft_vocabulary.ids = std::move(kept);
  return config;
}

// A student's head, a teacher of `teacher_vocabulary` ids, and labels.
struct Lesson {
  Lesson(int64_t positions, int64_t teacher_vocabulary, const model::TransformerConfig& student)
      : shared(student, teacher_vocabulary) {
    at::manual_seed(7);
    const auto options = at::TensorOptions(at::kDouble);
    const int64_t head_rows =
        student.draft_vocabulary.ids.empty() ? student.vocabulary : int64_t(student.draft_vocabulary.ids.size());
    hidden = at::randn({positions, kWidth}, options).requires_grad_(true);
    weight = at::randn({head_rows, kWidth}, options).requires_grad_(true);
    teacher_logits = at::randn({positions, teacher_vocabulary}, options) * 2;
    labels = at::randint(shared.shared, {positions}, at::TensorOptions(at::kLong));
    positions_of = at::arange(positions, at::kLong);
  }

  // Labels as the teacher's ids.
  at::Tensor label_ids() const { return shared.ids.defined() ? shared.ids.index_select(0, labels) : labels; }

  at::Tensor loss(TeacherDistributions& teacher, const DistillOptions& options) const {
    return linear_distillation(hidden, weight, {.labels = {labels, positions_of}}, teacher, shared, options);
  }

  SharedRows shared;
  at::Tensor hidden, weight;  // [P,D], [rows,D]
  at::Tensor teacher_logits;  // [P,V]
  at::Tensor labels;          // [P]
  at::Tensor positions_of;    // [P]
};

inline Lesson simple_lesson(int64_t positions = 6, int64_t vocabulary = 11) {
  return {positions, vocabulary, ids_config(vocabulary)};
}

inline std::vector<double> softmax_of(const std::vector<double>& logits) {
  double sum = 0;
  std::vector<double> probabilities;
  for (const double z : logits) sum += std::exp(z);
  for (const double z : logits) probabilities.push_back(std::exp(z) / sum);
  return probabilities;
}

inline double kl(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t v = 0; v < p.size(); ++v) sum += p[v] > 0 ? p[v] * std::log(p[v] / q[v]) : 0;
  return sum;
}

// methods.md §2, to the letter.
inline double divergence_by_definition(const DistillOptions& options, const std::vector<double>& p,
                                       const std::vector<double>& q) {
  if (options.divergence == "forward_kl") return kl(p, q);
  if (options.divergence == "reverse_kl") return kl(q, p);
  double distance = 0;
  std::vector<double> m;
  for (size_t v = 0; v < p.size(); ++v) {
    distance += std::abs(p[v] - q[v]) / 2;
    m.push_back(options.beta * p[v] + (1 - options.beta) * q[v]);
  }
  if (options.divergence == "tv") return distance;
  if (options.divergence == "nla") return -std::log(1 - distance);
  return options.beta * kl(p, m) + (1 - options.beta) * kl(q, m);
}

// Row `row` of a matrix's columns `columns`, divided by `temperature`.
inline std::vector<double> row_of(const at::Tensor& matrix, int64_t row, const std::vector<int64_t>& columns,
                                  double temperature) {
  std::vector<double> values;
  for (const int64_t v : columns) values.push_back(matrix[row][v].item<double>() / temperature);
  return values;
}

inline std::vector<int64_t> counted(int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

inline double loss_by_definition(const Lesson& lesson, const DistillOptions& options) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = lesson.hidden.mm(lesson.weight.t());  // [P,rows]
  const auto shared = counted(lesson.shared.shared);
  std::vector<int64_t> ids = shared;
  for (size_t i = 0; i < ids.size() && lesson.shared.ids.defined(); ++i) {
    ids[i] = lesson.shared.ids[static_cast<int64_t>(i)].item<int64_t>();
  }
  double sum = 0;
  for (int64_t t = 0; t < logits.size(0); ++t) {
    const auto q1 = softmax_of(row_of(logits, t, counted(logits.size(1)), 1));
    double spread = 0;
    for (const double q : q1) spread -= std::log(q) / static_cast<double>(q1.size());
    const double nll = -std::log(q1[static_cast<size_t>(lesson.labels[t].item<int64_t>())]);
    const auto q = softmax_of(row_of(logits, t, shared, options.temperature));
    const auto p = softmax_of(row_of(lesson.teacher_logits, t, ids, options.temperature));
    sum += options.lambda * ((1 - options.label_smoothing) * nll + options.label_smoothing * spread);
    sum += (1 - options.lambda) * options.temperature * options.temperature * divergence_by_definition(options, p, q);
  }
  return sum;
}

inline void expect_finite_differences(const Lesson& lesson, TeacherDistributions& teacher,
                                      const DistillOptions& options) {
  lesson.hidden.mutable_grad().reset();
  lesson.weight.mutable_grad().reset();
  lesson.loss(teacher, options).backward();
  const auto value = [&] { return lesson.loss(teacher, options).item<double>(); };
  EXPECT_LT(difference(lesson.hidden.grad(), numeric_gradient(lesson.hidden, value)), 1e-7) << label_of(options);
  EXPECT_LT(difference(lesson.weight.grad(), numeric_gradient(lesson.weight, value)), 1e-7) << label_of(options);
}

}  // namespace draftsmith::train
