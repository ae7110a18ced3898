#include "train/objectives/distillation_loss.h"

#include "train/objectives/cross_entropy_loss.h"

namespace draftsmith::train {

namespace {

// Positions [begin, begin + count) of a block.
TeacherBlock part_of(const TeacherBlock& block, int64_t begin, int64_t count) {
  if (!block.logits.defined() && !block.ids.defined()) return {};
  if (block.logits.defined()) return {.logits = block.logits.narrow(0, begin, count)};
  return {.ids = block.ids.narrow(0, begin, count),
          .log_probs = block.log_probs.narrow(0, begin, count),
          .tail_log_mass = block.tail_log_mass.narrow(0, begin, count)};
}

class Distillation : public PositionLoss {
 public:
  Distillation(const Teaching& teaching, const DistillationTerms& terms)
      : PositionLoss(teaching.weights), teaching_(teaching), terms_(terms) {}

  void begin_block(const PositionRange& block) override {
    begin_ = block.begin;
    if (terms_.lambda == 1) return;
    teacher_ = teaching_.teacher->block(teaching_.positions.narrow(0, block.begin, block.count));
  }

  // Frees the block first: two blocks of a teacher's logits never exist together.
  void end_block() override { teacher_ = {}; }

 protected:
  at::Tensor losses(at::Tensor& logits, const PositionRange& rows, bool gradient) override {
    const at::Tensor labels = teaching_.labels.narrow(0, rows.begin, rows.count);
    if (!logits.is_cpu() && terms_.lambda == 1) {
      return cross_entropy_losses(logits, labels, terms_.label_smoothing, gradient);
    }
    const TeacherBlock teacher = part_of(teacher_, rows.begin - begin_, rows.count);
    const SharedRows none(0, {});  // lambda is 1
    const SharedRows& shared = teaching_.shared != nullptr ? *teaching_.shared : none;
    return distillation_losses(logits, labels, teacher, shared, terms_, gradient);
  }

 private:
  Teaching teaching_;
  DistillationTerms terms_;
  int64_t begin_ = 0;     // of the block
  TeacherBlock teacher_;  // of the block
};

}  // namespace

TeacherBlock SharedTeacher::block(const at::Tensor& positions) {
  const bool same =
      positions_.defined() && positions.data_ptr() == positions_.data_ptr() && positions.size(0) == positions_.size(0);
  if (same) return block_;
  block_ = {};
  block_ = teacher_.block(positions);
  positions_ = positions;  // held, so that no other tensor can take its place
  return block_;
}

std::unique_ptr<LogitLoss> make_distillation_loss(const Teaching& teaching, const DistillationTerms& terms) {
  return std::make_unique<Distillation>(teaching, terms);
}

}  // namespace draftsmith::train
