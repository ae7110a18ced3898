// The operator draftsmith::distill, below autograd: the losses of distillation and their slope in one launch on a GPU,
// by kernels of our own (train/objectives/kernels/distillation.cu), without temporaries of [C,V].
#pragma once

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "train/objectives/distillation_sum.h"

namespace draftsmith::train {

// Returns the source of the operator's kernels.
KernelSource distillation_source();

// Returns what distillation_losses() does, for lambda < 1. The kernels take contiguous fp32 logits, whole distributions
// in fp32, bf16 or fp16, and up to 512 ids of a teacher; LibTorch's operators compute all others.
at::Tensor distillation_by_operator(at::Tensor& logits, const at::Tensor& labels, const TeacherBlock& teacher,
                                    const SharedRows& shared, const DistillationTerms& terms, bool slope);

}  // namespace draftsmith::train
