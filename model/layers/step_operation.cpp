#include "model/layers/step_operation.h"

namespace draftsmith::model {
namespace {

// Numbers of an operation's tensors, by kind.
constexpr size_t kWritten[] = {1, 1, 2, 1};
constexpr size_t kRead[] = {7, 8, 4, 3};

}  // namespace

std::vector<StepOperation> step_operations(at::TensorList written, at::TensorList read, at::IntArrayRef kinds,
                                           at::IntArrayRef numbers, at::ArrayRef<double> factors) {
  std::vector<StepOperation> operations;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto kind = static_cast<size_t>(kinds[i]);
    operations.push_back({static_cast<kernel::StepKind>(kinds[i]), written.slice(0, kWritten[kind]),
                          read.slice(0, kRead[kind]), numbers[i], factors[i]});
    written = written.slice(kWritten[kind]);
    read = read.slice(kRead[kind]);
  }
  return operations;
}

}  // namespace draftsmith::model
