#include "infer/sampling/sampling.h"

#include <cmath>
#include <limits>
#include <tuple>

#include <ATen/Dispatch.h>

#include "base/device_kernels.h"
#include "base/device_tensors.h"
#include "model/cpu/team.h"

namespace draftsmith::infer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMinusInfinity = -kInfinity;

// Keeps exactly k tokens: all above the k-th value, and the lowest ids among those equal to it.
at::Tensor keep_top_k(const at::Tensor& logits, int64_t k) {
  const auto kth = std::get<0>(logits.topk(k, -1)).narrow(-1, k - 1, 1);  // [...,1]
  const auto above = logits.gt(kth);                                      // [...,V]
  const auto equal = logits.eq(kth);
  const auto room = k - above.sum(-1, true);
  return logits.masked_fill((above | (equal & equal.cumsum(-1).le(room))).logical_not(), kMinusInfinity);
}

// Keeps the smallest prefix of the order by probability (then id) whose mass reaches p, and at least one token.
at::Tensor keep_top_p(const at::Tensor& logits, double p) {
  auto [sorted, order] = at::sort(logits, /*stable=*/true, -1, /*descending=*/true);
  const auto mass = sorted.softmax(-1);                           // [...,V]
  const auto before = mass.to(at::kDouble).cumsum(-1).sub(mass);  // mass of the tokens ahead
  auto drop = before.ge(p);
  drop.select(-1, 0).fill_(false);
  return logits.masked_fill(at::zeros_like(drop).scatter(-1, order, drop), kMinusInfinity);
}

// Keeps tokens whose probability is at least `p` times the largest.
at::Tensor keep_min_p(const at::Tensor& logits, double p) {
  const auto weights = logits.sub(logits.amax(-1, true)).exp();  // [...,V], 1 for the most likely
  return logits.masked_fill(weights.lt(p), kMinusInfinity);
}

}  // namespace

// A maximum is NaN where one of its numbers is.
at::Tensor tensor_most_likely(const at::Tensor& logits) {
  const auto tokens = logits.argmax(-1);                                     // [...]
  const auto highest = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1);  // [...]
  return tokens.masked_fill(highest.lt(kInfinity).logical_not(), kNoToken);
}

at::Tensor tensor_warp(const at::Tensor& logits, const Warping& warping) {
  at::Tensor scores = warping.temperature == 1 ? logits : logits / warping.temperature;
  if (warping.top_k > 0 && warping.top_k < scores.size(-1)) scores = keep_top_k(scores, warping.top_k);
  if (warping.top_p < 1) scores = keep_top_p(scores, warping.top_p);
  if (warping.min_p > 0) scores = keep_min_p(scores, warping.min_p);
  const auto broken = logits.amax(-1, true).lt(kInfinity).logical_not();  // [...,1]; truncation could drop a NaN
  return scores.softmax(-1).masked_fill_(broken, std::numeric_limits<double>::quiet_NaN());
}

at::Tensor tensor_draw(const at::Tensor& weights, const at::Tensor& uniforms) {
  const auto cumulative = weights.cumsum(-1, at::kDouble);         // [B,V]
  const auto total = cumulative.select(-1, weights.size(-1) - 1);  // [B]
  return at::searchsorted(cumulative, (total * uniforms).unsqueeze(-1), /*out_int32=*/false, /*right=*/true)
      .squeeze(-1)
      .clamp_max(weights.size(-1) - 1)
      .masked_fill(total.isfinite().logical_not(), kNoToken);
}

namespace {

constexpr unsigned kThreads = 1024;  // of every block

DeviceKernels& draw_kernels() {
  static DeviceKernels instance(draws_source());
  return instance;
}

// Returns the kernel for weights of [...,V], of which there are some; nullptr if there is none.
const void* find_draw_kernel(const char* name, const at::Tensor& weights) {
  const bool taken = weights.scalar_type() == at::kFloat && weights.numel() > 0 &&
                     weights.size(-1) <= std::numeric_limits<int32_t>::max() / 2 &&
                     weights.size(0) <= std::numeric_limits<int32_t>::max();
  return taken ? draw_kernels().find(weights.device(), name, at::kFloat) : nullptr;
}

}  // namespace

KernelSource draws_source() {
  return kernel_source(infer_kernel_texts(), "infer/sampling/kernels/draws.cu");
}

KernelSource most_likely_source() {
  return kernel_source(infer_kernel_texts(), "infer/sampling/kernels/most_likely.cu");
}

namespace {

constexpr int64_t kNumbersPerTask = 1 << 16;  // a second thread costs about as much as this many

// Calls work(row, pointer to its V numbers), which throws nothing, for each row of contiguous [...,V], fp32 or fp64.
template <class T, class Work>
void for_each_row(const at::Tensor& values, const Work& work) {
  const int64_t width = values.size(-1);
  const T* data = values.const_data_ptr<T>();
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) work(row, data + row * width);
  };
  const int64_t rows = values.numel() / width;
  if (rows == 1 || rows * width <= kNumbersPerTask) return task(0, rows);
  model::in_pieces(rows, task);
}

at::IntArrayRef leading_sizes(const at::Tensor& values) {
  return values.sizes().slice(0, static_cast<size_t>(values.dim()) - 1);
}

at::Tensor warp_rows(const at::Tensor& logits, const Warping& warping) {
  const auto scores = logits.contiguous();
  auto out = host_empty(scores.sizes(), scores.scalar_type());
  const int64_t width = scores.size(-1);
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "warp", [&] {
    auto* probabilities = out.mutable_data_ptr<scalar_t>();
    for_each_row<scalar_t>(scores, [&](int64_t row, const scalar_t* values) {
      row_warp(values, width, warping, probabilities + row * width);
    });
  });
  return out;
}

// Returns one number of type fp32 or fp64 a row: value(row, logits of the row, its softmax's sums).
template <class Value>
at::Tensor by_softmax(const at::Tensor& logits, const Value& value) {
  const auto scores = logits.contiguous();
  auto out = host_empty(leading_sizes(scores), scores.scalar_type());
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "softmax sums", [&] {
    auto* results = out.mutable_data_ptr<scalar_t>();
    for_each_row<scalar_t>(scores, [&](int64_t row, const scalar_t* values) {
      const SoftmaxSums sums = row_softmax_sums(values, scores.size(-1));
      results[row] = static_cast<scalar_t>(value(row, values, sums));
    });
  });
  return out;
}

// Returns one token a row: token(row, the row's V numbers).
template <class Token>
at::Tensor row_tokens(const at::Tensor& rows, const Token& token) {
  const auto values = rows.contiguous();
  auto out = host_empty(leading_sizes(values), at::kLong);
  auto* tokens = out.mutable_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "row tokens", [&] {
    for_each_row<scalar_t>(values, [&](int64_t row, const scalar_t* own) { tokens[row] = token(row, own); });
  });
  return out;
}

at::Tensor most_likely_on_cpu(const at::Tensor& logits) {
  if (logits.numel() == 0 || !has_row_kernels(logits)) return tensor_most_likely(logits);
  return row_tokens(logits, [&](int64_t, const auto* values) { return row_argmax(values, logits.size(-1)); });
}

at::Tensor most_likely_on_gpu(const at::Tensor& logits) {
  static DeviceKernels kernels(most_likely_source());
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t vocabulary = logits.size(-1);
  const int64_t positions = logits.numel() == 0 ? 0 : logits.numel() / vocabulary;
  const bool taken = positions > 0 && positions <= kMost && vocabulary <= kMost;
  const void* kernel = taken ? kernels.find(logits.device(), "most_likely", logits.scalar_type()) : nullptr;
  if (kernel == nullptr) return tensor_most_likely(logits);
  const at::Tensor scores = logits.contiguous();
  at::Tensor tokens = at::empty(leading_sizes(logits), logits.options().dtype(at::kLong));
  kernels.launch(kernel, logits.device(), {static_cast<unsigned>(positions)}, {kThreads}, scores.const_data_ptr(),
                 tokens.mutable_data_ptr(), static_cast<int>(vocabulary), static_cast<long long>(kNoToken));
  return tokens;
}

at::Tensor draw_on_cpu(const at::Tensor& weights, const at::Tensor& uniforms) {
  if (!has_row_kernels(weights)) return tensor_draw(weights, uniforms);
  const auto chances = uniforms.contiguous();
  const auto* chance = chances.const_data_ptr<double>();
  return row_tokens(weights,
                    [&](int64_t row, const auto* values) { return row_draw(values, weights.size(-1), chance[row]); });
}

at::Tensor draw_on_gpu(const at::Tensor& weights, const at::Tensor& uniforms) {
  const void* kernel = find_draw_kernel("draw", weights);
  if (kernel == nullptr) return tensor_draw(weights, uniforms);
  const at::Tensor rows = weights.contiguous();
  const at::Tensor chances = uniforms.contiguous();
  at::Tensor tokens = at::empty({rows.size(0)}, rows.options().dtype(at::kLong));
  draw_kernels().launch(kernel, rows.device(), {static_cast<unsigned>(rows.size(0))}, {kThreads}, rows.const_data_ptr(),
                        chances.const_data_ptr(), tokens.mutable_data_ptr(), static_cast<int>(rows.size(1)));
  return tokens;
}

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
  const void* kernel = p.scalar_type() == q.scalar_type() ? find_draw_kernel("reject", p) : nullptr;
  if (kernel == nullptr) return reject_in_tensors(p, q, tokens, counts, r_accept, r_next);
  const DraftedTokens in{p.contiguous(),      q.contiguous(),        tokens.contiguous(),
                         counts.contiguous(), r_accept.contiguous(), r_next.contiguous()};
  at::Tensor accepted = at::empty_like(in.counts);
  at::Tensor next = at::empty_like(in.counts);
  draw_kernels().launch(kernel, in.p.device(), {static_cast<unsigned>(in.p.size(0))}, {kThreads}, in.p.const_data_ptr(),
                        in.q.const_data_ptr(), in.tokens.const_data_ptr(), in.counts.const_data_ptr(),
                        in.r_accept.const_data_ptr(), in.r_next.const_data_ptr(), accepted.mutable_data_ptr(),
                        next.mutable_data_ptr(), static_cast<int>(in.tokens.size(1)), static_cast<int>(in.p.size(2)));
  return {accepted, next};
}

}  // namespace

at::Tensor warp(const at::Tensor& logits, const Warping& warping) {
  const auto scores = promoted(logits);
  if (warping.greedy()) {
    return at::zeros_like(scores).scatter_(-1, most_likely(scores).clamp_min(0).unsqueeze(-1), 1.0);
  }
  return has_row_kernels(scores) ? warp_rows(scores, warping) : tensor_warp(scores, warping);
}

at::Tensor most_likely(const at::Tensor& logits) {
  if (logits.is_cpu()) return most_likely_on_cpu(logits);
  static const DeviceOperator op("most_likely(Tensor logits) -> Tensor", &most_likely_on_cpu, &most_likely_on_gpu);
  return op(logits);
}

at::Tensor confidence(const at::Tensor& logits) {
  const auto scores = promoted(logits);
  if (!has_row_kernels(scores)) return scores.softmax(-1).amax(-1);
  return by_softmax(scores, [](int64_t, const auto*, const SoftmaxSums& sums) { return 1 / sums.total; });
}

at::Tensor token_log_probability(const at::Tensor& logits, const at::Tensor& tokens) {
  const auto scores = promoted(logits);
  if (!has_row_kernels(scores)) return scores.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1);
  const auto ids = tokens.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  return by_softmax(scores, [id](int64_t row, const auto* values, const SoftmaxSums& sums) {
    return static_cast<double>(values[id[row]]) - sums.highest - std::log(sums.total);
  });
}

at::Tensor draw(const at::Tensor& weights, const at::Tensor& uniforms) {
  if (weights.is_cpu()) return draw_on_cpu(weights, uniforms);
  static const DeviceOperator op("draw(Tensor weights, Tensor uniforms) -> Tensor", &draw_on_cpu, &draw_on_gpu);
  return op(weights, uniforms);
}

at::Tensor leading(const at::Tensor& kept) {
  return kept.to(at::kLong).cumprod(1).sum(1);
}

at::Tensor at_position(const at::Tensor& values, const at::Tensor& position) {
  const int64_t positions = values.size(1);
  const auto first = at::arange(values.size(0), position.options()).mul_(positions);  // [B]
  return values.reshape({-1, values.size(2)}).index_select(0, first.add_(position));
}

Decided decide_by_rejection(const DraftedTokens& drafted) {
  static const DeviceOperator op(
      "reject(Tensor p, Tensor q, Tensor tokens, Tensor counts, Tensor r_accept, Tensor r_next) -> (Tensor, Tensor)",
      &reject_in_tensors, &reject_on_gpu);
  const auto [accepted, next] =
      op(drafted.p, drafted.q, drafted.tokens, drafted.counts, drafted.r_accept, drafted.r_next);
  return {accepted, next};
}

}  // namespace draftsmith::infer
