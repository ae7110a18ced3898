#include "infer/sampling.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

namespace draftsmith::infer {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

at::Tensor promoted(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

// Exactly k tokens: those above the k-th value, and of those equal to it the lowest ids.
at::Tensor keep_top_k(const at::Tensor& logits, int64_t k) {
  const auto kth = std::get<0>(logits.topk(k, -1)).narrow(-1, k - 1, 1);  // [...,1]
  const auto above = logits.gt(kth);                                      // [...,V]
  const auto equal = logits.eq(kth);
  const auto room = k - above.sum(-1, true);
  return logits.masked_fill((above | (equal & equal.cumsum(-1).le(room))).logical_not(), kMinusInfinity);
}

// The smallest prefix of the order by probability (then id) whose mass reaches p; never empty.
at::Tensor keep_top_p(const at::Tensor& logits, double p) {
  auto [sorted, order] = at::sort(logits, /*stable=*/true, -1, /*descending=*/true);
  const auto mass = sorted.softmax(-1);                           // [...,V]
  const auto before = mass.to(at::kDouble).cumsum(-1).sub(mass);  // mass of the tokens ahead
  auto drop = before.ge(p);
  drop.select(-1, 0).fill_(false);
  return logits.masked_fill(at::zeros_like(drop).scatter(-1, order, drop), kMinusInfinity);
}

template <class T>
void host_argmax(const at::Tensor& logits, const at::Tensor& largest, int64_t* out) {
  const int64_t width = logits.size(-1);
  const T* values = logits.const_data_ptr<T>();
  const T* maxima = largest.const_data_ptr<T>();
  for (int64_t i = 0; i < largest.numel(); ++i, values += width) {
    const int64_t found = std::find(values, values + width, maxima[i]) - values;
    out[i] = found < width ? found : 0;
  }
}

// Sum in eight interleaved parts, which the compiler turns into vector additions.
template <class T>
double sum_of(const T* values, int64_t count) {
  std::array<double, 8> parts{};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) parts[j] += static_cast<double>(values[i + static_cast<int64_t>(j)]);
  }
  for (; i < count; ++i) parts[0] += static_cast<double>(values[i]);
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

// The token at which the running sum of the weights passes `uniform` of their total: block sums first, then inside one
// block, so that the pass over V is vector code.
template <class T>
int64_t host_draw(const T* weights, int64_t count, double uniform) {
  constexpr int64_t kBlock = 512;
  std::vector<double> sums;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    sums.push_back(sum_of(weights + begin, std::min(kBlock, count - begin)));
  }
  double threshold = std::accumulate(sums.begin(), sums.end(), 0.0) * uniform;
  size_t block = 0;
  for (; block + 1 < sums.size() && threshold >= sums[block]; ++block) threshold -= sums[block];
  int64_t last = count - 1;  // where rounding lets nothing pass the threshold: the last token with weight
  for (int64_t i = static_cast<int64_t>(block) * kBlock; i < count; ++i) {
    if (weights[i] <= 0) continue;
    if (threshold < static_cast<double>(weights[i])) return i;
    threshold -= static_cast<double>(weights[i]);
    last = i;
  }
  return last;
}

template <class T>
at::Tensor host_draws(const at::Tensor& weights, const at::Tensor& uniforms) {
  const int64_t width = weights.size(-1);
  const auto rows = weights.contiguous();
  const auto chances = uniforms.contiguous();
  auto out = at::empty(uniforms.sizes(), at::kLong);
  for (int64_t i = 0; i < uniforms.numel(); ++i) {
    out.mutable_data_ptr<int64_t>()[i] =
        host_draw(rows.const_data_ptr<T>() + i * width, width, chances.const_data_ptr<double>()[i]);
  }
  return out;
}

}  // namespace

at::Tensor warp(const at::Tensor& logits, const Warping& warping) {
  auto scores = promoted(logits);
  if (warping.greedy()) {
    return at::zeros_like(scores).scatter_(-1, most_likely(scores).unsqueeze(-1), 1.0);
  }
  if (warping.temperature != 1) scores = scores / warping.temperature;
  if (warping.top_k > 0 && warping.top_k < scores.size(-1)) scores = keep_top_k(scores, warping.top_k);
  if (warping.top_p < 1) scores = keep_top_p(scores, warping.top_p);
  return scores.softmax(-1);
}

at::Tensor most_likely(const at::Tensor& logits) {
  const auto type = logits.scalar_type();
  if (!logits.is_cpu() || (type != at::kFloat && type != at::kDouble) || logits.numel() == 0) {
    return logits.argmax(-1);
  }
  // The CPU's argmax is scalar code; a vectorised maximum and a search for it are several times faster.
  const auto scores = logits.contiguous();
  const auto largest = scores.amax(-1);
  auto out = at::empty(largest.sizes(), at::kLong);
  if (type == at::kFloat) {
    host_argmax<float>(scores, largest, out.mutable_data_ptr<int64_t>());
  } else {
    host_argmax<double>(scores, largest, out.mutable_data_ptr<int64_t>());
  }
  return out;
}

// Softmax and log-softmax, not exp and logsumexp: on the CPU those go through MKL's threaded exponential, whose threads
// cost more than the work on one row, and many times more beside another busy process.
at::Tensor confidence(const at::Tensor& logits) {
  return promoted(logits).softmax(-1).amax(-1);
}

at::Tensor token_log_probability(const at::Tensor& logits, const at::Tensor& tokens) {
  return promoted(logits).log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1);
}

at::Tensor draw(const at::Tensor& weights, const at::Tensor& uniforms) {
  if (weights.is_cpu() && weights.scalar_type() == at::kFloat) return host_draws<float>(weights, uniforms);
  if (weights.is_cpu() && weights.scalar_type() == at::kDouble) return host_draws<double>(weights, uniforms);
  const auto cumulative = weights.cumsum(-1, at::kDouble);                                         // [B,V]
  const auto threshold = cumulative.narrow(-1, weights.size(-1) - 1, 1) * uniforms.unsqueeze(-1);  // [B,1]
  return at::searchsorted(cumulative, threshold, /*out_int32=*/false, /*right=*/true)
      .squeeze(-1)
      .clamp_max(weights.size(-1) - 1);
}

}  // namespace draftsmith::infer
