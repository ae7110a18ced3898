#include "infer/beam/continuations.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <ATen/Parallel.h>

#include "infer/loop/rows.h"

namespace draftsmith::infer {
namespace {

// The best continuations seen so far, best first. Of equal scores the earlier one stays in front.
class Best {
 public:
  explicit Best(std::span<Continuation> out) : out_(out) {}

  // Returns the score that a continuation must exceed to be among them.
  double least() const { return filled_ < out_.size() ? -std::numeric_limits<double>::infinity() : out_.back().score; }
  bool full() const { return filled_ == out_.size(); }

  void add(const Continuation& one) {
    size_t place = full() ? filled_ - 1 : filled_++;
    for (; place > 0 && out_[place - 1].score < one.score; --place) out_[place] = out_[place - 1];
    out_[place] = one;
  }

 private:
  std::span<Continuation> out_;
  size_t filled_ = 0;
};

// Fills `out` with the best continuations of a source's beams. log_probs: [beams,V].
template <class T>
void scan_source(const T* log_probs, std::span<const double> scores, int64_t vocabulary, std::span<Continuation> out) {
  Best best(out);
  for (size_t beam = 0; beam < scores.size(); ++beam) {
    const T* row = log_probs + static_cast<int64_t>(beam) * vocabulary;
    const auto score = static_cast<T>(scores[beam]);
    auto least = static_cast<T>(best.least());
    for (int64_t token = 0; token < vocabulary; ++token) {
      const T sum = row[token] + score;
      if (sum <= least && best.full()) continue;
      if (std::isnan(sum)) {
        out.front().score = sum;
        return;
      }
      best.add({static_cast<int64_t>(beam), token, static_cast<double>(sum)});
      least = static_cast<T>(best.least());
    }
  }
}

std::vector<Continuation> best_on_host(const at::Tensor& log_probs, std::span<const double> scores, int64_t beams,
                                       int64_t count) {
  const int64_t sources = log_probs.size(0) / beams;
  const int64_t vocabulary = log_probs.size(1);
  std::vector<Continuation> best(static_cast<size_t>(sources * count));
  const auto scan = [&](const auto* values) {
    at::parallel_for(0, sources, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        scan_source(values + s * beams * vocabulary,
                    scores.subspan(static_cast<size_t>(s * beams), static_cast<size_t>(beams)), vocabulary,
                    std::span(best).subspan(static_cast<size_t>(s * count), static_cast<size_t>(count)));
      }
    });
  };
  if (log_probs.scalar_type() == at::kDouble) {
    scan(log_probs.const_data_ptr<double>());
  } else {
    scan(log_probs.const_data_ptr<float>());
  }
  return best;
}

std::vector<Continuation> best_on_device(const at::Tensor& log_probs, std::span<const double> scores, int64_t beams,
                                         int64_t count) {
  const int64_t sources = log_probs.size(0) / beams;
  const int64_t vocabulary = log_probs.size(1);
  const at::Tensor so_far =
      at::tensor(at::ArrayRef<double>(scores.data(), scores.size()), at::kDouble).to(log_probs.options());
  const auto [values, places] =
      log_probs.add(so_far.unsqueeze(1)).view({sources, beams * vocabulary}).topk(count, /*dim=*/1);
  const at::Tensor sums = values.to(at::kCPU, at::kDouble).contiguous();
  const std::vector<int64_t> indices = to_host(places);
  std::vector<Continuation> best;
  for (size_t i = 0; i < indices.size(); ++i) {
    best.push_back({indices[i] / vocabulary, indices[i] % vocabulary, sums.const_data_ptr<double>()[i]});
  }
  return best;
}

}  // namespace

std::vector<Continuation> best_continuations(const at::Tensor& log_probs, std::span<const double> scores, int64_t beams,
                                             int64_t count) {
  if (count > beams * log_probs.size(1) || log_probs.size(0) % beams != 0) {
    throw std::logic_error("beams have fewer continuations than are wanted");
  }
  return log_probs.is_cpu() ? best_on_host(log_probs.contiguous(), scores, beams, count)
                            : best_on_device(log_probs, scores, beams, count);
}

}  // namespace draftsmith::infer
