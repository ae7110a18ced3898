#include "infer/inside/ppd_candidates.h"

#include <limits>

#include <ATen/Dispatch.h>

#include "infer/loop/rows.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {
namespace {

// Beyond this many, sorting them in takes longer than ATen's selection.
constexpr int64_t kMostSortedIn = 64;

}  // namespace

std::vector<std::vector<int64_t>> most_likely_tokens(const at::Tensor& logits, int64_t k) {
  const auto type = logits.scalar_type();
  std::vector<std::vector<int64_t>> tokens(static_cast<size_t>(logits.size(0)));
  if (logits.is_cpu() && (type == at::kFloat || type == at::kDouble) && k <= kMostSortedIn) {
    const at::Tensor rows = logits.contiguous();
    AT_DISPATCH_FLOATING_TYPES(type, "most_likely_tokens", [&] {
      const auto* row = rows.const_data_ptr<scalar_t>();
      for (auto& best : tokens) {
        best.resize(static_cast<size_t>(k));
        best.resize(static_cast<size_t>(row_top(row, rows.size(1), k, best.data())));
        row += rows.size(1);
      }
    });
    return tokens;
  }
  const auto [values, ids] = logits.topk(k);  // [B,k]
  const auto known = to_host(at::where(values.gt(-std::numeric_limits<double>::infinity()), ids, -1));
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i] >= 0) tokens[i / static_cast<size_t>(k)].push_back(known[i]);
  }
  return tokens;
}

}  // namespace draftsmith::infer
