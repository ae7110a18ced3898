#include "infer/loop/row_verdict.h"

#include <algorithm>

namespace draftsmith::infer {

Judgement transfer(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft) {
  std::vector<at::Tensor> columns = {judgement.accepted.unsqueeze(1), judgement.next.unsqueeze(1)};
  if (!draft.read) columns.push_back(tokens);  // [B,G]
  if (judgement.rolled_back.defined()) columns.push_back(judgement.rolled_back.unsqueeze(1).to(at::kLong));
  if (judgement.overlap.defined()) columns.push_back(judgement.overlap.view(at::kLong));  // the bits of fp64
  const at::Tensor host = at::cat(columns, 1).cpu();
  int64_t column = 2;
  const auto next_columns = [&](int64_t count) {
    column += count;
    return host.narrow(1, column - count, count);
  };
  Judgement copy{.accepted = host.select(1, 0), .next = host.select(1, 1), .rolled_back = {}, .overlap = {}};
  if (!draft.read) draft.set_tokens(next_columns(tokens.size(1)), eos);
  if (judgement.rolled_back.defined()) copy.rolled_back = next_columns(1).squeeze(1).to(at::kBool);
  if (judgement.overlap.defined()) copy.overlap = next_columns(judgement.overlap.size(1)).view(at::kDouble);
  return copy;
}

Judgement fetch(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft) {
  return tokens.is_cpu() ? judgement : transfer(judgement, tokens, eos, draft);
}

std::vector<RowVerdict> row_verdicts(const Judgement& judgement, const Draft& draft) {
  const auto accepted = judgement.accepted.accessor<int64_t, 1>();
  const auto next = judgement.next.accessor<int64_t, 1>();
  const at::Tensor& overlap = judgement.overlap;
  std::vector<RowVerdict> verdicts(draft.on_host.size());
  for (size_t row = 0; row < verdicts.size(); ++row) {
    const auto b = static_cast<int64_t>(row);
    const int64_t drafted = std::ssize(draft.on_host[row]);
    RowVerdict& verdict = verdicts[row];
    verdict.accepted = std::min(accepted[b], drafted);
    verdict.next = next[b];
    if (judgement.rolled_back.defined()) {
      verdict.rolled_back = judgement.rolled_back.accessor<bool, 1>()[b] && verdict.accepted < drafted;
    }
    if (overlap.defined()) {
      const int64_t judged = verdict.accepted + (verdict.next == kNoToken ? 0 : 1);
      const auto examined = static_cast<size_t>(std::min(judged, drafted));
      verdict.overlap = {overlap.const_data_ptr<double>() + b * overlap.stride(0), examined};
    }
  }
  return verdicts;
}

}  // namespace draftsmith::infer
