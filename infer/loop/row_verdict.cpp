#include "infer/loop/row_verdict.h"

#include <algorithm>

namespace draftsmith::infer {

PackedJudgement pack(const Judgement& judgement, const at::Tensor& tokens) {
  PackedJudgement packed;
  std::vector<at::Tensor> columns = {judgement.accepted.unsqueeze(1), judgement.next.unsqueeze(1)};
  if (tokens.defined()) columns.push_back(tokens);
  if (judgement.rolled_back.defined()) columns.push_back(judgement.rolled_back.unsqueeze(1).to(at::kLong));
  if (judgement.overlap.defined()) columns.push_back(judgement.overlap.view(at::kLong));  // the bits of fp64
  packed.tokens = tokens.defined() ? tokens.size(1) : 0;
  packed.rolled_back = judgement.rolled_back.defined() ? 1 : 0;
  packed.overlap = judgement.overlap.defined() ? std::optional(judgement.overlap.size(1)) : std::nullopt;
  packed.columns = at::cat(columns, 1);
  return packed;
}

UnpackedJudgement unpack(const PackedJudgement& packed, const at::Tensor& host) {
  int64_t column = 2;
  const auto next_columns = [&](int64_t count) {
    column += count;
    return host.narrow(1, column - count, count);
  };
  UnpackedJudgement copy;
  copy.judgement.accepted = host.select(1, 0);
  copy.judgement.next = host.select(1, 1);
  copy.tokens = next_columns(packed.tokens);
  if (packed.rolled_back > 0) copy.judgement.rolled_back = next_columns(1).squeeze(1).to(at::kBool);
  if (packed.overlap) copy.judgement.overlap = next_columns(*packed.overlap).view(at::kDouble);
  return copy;
}

Judgement transfer(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft) {
  const PackedJudgement packed = pack(judgement, draft.read ? at::Tensor() : tokens);
  const UnpackedJudgement copy = unpack(packed, packed.columns.cpu());
  if (!draft.read) draft.set_tokens(copy.tokens, eos);
  return copy.judgement;
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
