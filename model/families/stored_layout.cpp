#include "model/families/stored_layout.h"

#include <algorithm>

namespace draftsmith::model {

std::vector<int64_t> stored_shape(const std::vector<int64_t>& shape, const StoredTensor& stored) {
  std::vector<int64_t> result = shape;
  result.front() *= stored.parts;
  if (stored.transposed) {
    std::reverse(result.begin(), result.end());
  }
  return result;
}

at::Tensor take_parameter(const at::Tensor& stored, const StoredTensor& where, int64_t heads) {
  at::Tensor outputs_first = where.transposed && stored.dim() == 2 ? stored.t() : stored;
  const int64_t outputs = outputs_first.size(0) / where.parts;
  switch (where.join) {
    case Join::kNone:
      break;
    case Join::kBlocks:
      return outputs_first.narrow(0, where.part * outputs, outputs);
    case Join::kHeads:
      return outputs_first.unflatten(0, {heads, where.parts, outputs / heads}).select(1, where.part).flatten(0, 1);
  }
  return outputs_first;
}

at::Tensor join_parameters(const std::vector<at::Tensor>& parameters, const StoredTensor& where, int64_t heads) {
  at::Tensor joined = parameters.front();
  if (where.join == Join::kBlocks) {
    joined = at::cat(parameters);
  } else if (where.join == Join::kHeads) {
    std::vector<at::Tensor> by_head;
    for (const at::Tensor& parameter : parameters) {
      by_head.push_back(parameter.unflatten(0, {heads, parameter.size(0) / heads}));
    }
    joined = at::stack(by_head, 1).flatten(0, 2);
  }
  return where.transposed && joined.dim() == 2 ? joined.t() : joined;
}

}  // namespace draftsmith::model
