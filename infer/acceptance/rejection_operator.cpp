#include "infer/acceptance/rejection_operator.h"

#include <tuple>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer {

namespace {

// Returns weights [B,V]: max(0, p - q) after a rejection, p after a full acceptance or if p - q has no mass.
at::Tensor residual(const DraftedTokens& in, const at::Tensor& accepted) {
  const auto target = at_position(in.p, accepted);  // [B,V]
  const int64_t window = in.tokens.size(1);
  if (window == 0) return target;
  const auto rejected = accepted.lt(in.counts).unsqueeze(1);               // [B,1]
  const auto drafter = at_position(in.q, accepted.clamp_max(window - 1));  // [B,V]
  const auto rest = target.sub(drafter).clamp_min_(0);
  return at::where(rejected & rest.sum(1, true).gt(0), rest, target);
}

at::Tensor leading_accepted(const DraftedTokens& in) {
  const int64_t window = in.tokens.size(1);
  if (window == 0) return at::zeros_like(in.counts);
  const auto index = in.tokens.unsqueeze(2);                                   // [B,G,1]
  const auto p_token = in.p.narrow(1, 0, window).gather(2, index).squeeze(2);  // [B,G]
  const auto q_token = in.q.gather(2, index).squeeze(2);                       // [B,G]
  const auto positions = at::arange(window, in.tokens.options()).unsqueeze(0);
  // r < p/q without dividing; strict, so that p = 0 is never accepted.
  return leading(in.r_accept.mul(q_token).lt(p_token) & positions.lt(in.counts.unsqueeze(1)));
}

std::tuple<at::Tensor, at::Tensor> reject_in_tensors(const at::Tensor& p, const at::Tensor& q, const at::Tensor& tokens,
                                                     const at::Tensor& counts, const at::Tensor& r_accept,
                                                     const at::Tensor& r_next) {
  const DraftedTokens in{p, q, tokens, counts, r_accept, r_next};
  const at::Tensor accepted = leading_accepted(in);
  return {accepted, draw(residual(in, accepted), r_next.gather(1, accepted.unsqueeze(1)).squeeze(1))};
}

std::tuple<at::Tensor, at::Tensor> reject_on_gpu(const at::Tensor& p, const at::Tensor& q, const at::Tensor& tokens,
                                                 const at::Tensor& counts, const at::Tensor& r_accept,
                                                 const at::Tensor& r_next) {
  const auto decided = reject_by_kernel({p, q, tokens, counts, r_accept, r_next});
  if (decided) return {decided->accepted, decided->next};
  return reject_in_tensors(p, q, tokens, counts, r_accept, r_next);
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def(
      "reject(Tensor p, Tensor q, Tensor tokens, Tensor counts, Tensor r_accept, Tensor r_next) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("reject", &reject_in_tensors);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("reject", &reject_on_gpu);
}

}  // namespace

Decided decide_by_rejection(const DraftedTokens& drafted) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("draftsmith::reject", "").typed<decltype(reject_in_tensors)>();
  const auto [accepted, next] =
      op.call(drafted.p, drafted.q, drafted.tokens, drafted.counts, drafted.r_accept, drafted.r_next);
  return {accepted, next};
}

}  // namespace draftsmith::infer
