#include "train/step_batches.h"

#include <stdexcept>
#include <utility>

namespace draftsmith::train {

StepBatches::Step StepBatches::step_at(const data::BatchPosition& position) {
  Step step{.examples = {}, .before = position, .after = position};
  do {
    step.examples.push_back(order_.next(step.after));
  } while (std::ssize(step.examples) < accumulate_ && step.after.batch != 0);
  return step;
}

MicroBatches StepBatches::next(data::BatchPosition& position) {
  std::optional<Step> now = std::exchange(upcoming_, std::nullopt);
  begun_now_ = std::move(begun_next_);
  ready_.clear();
  const bool expected = now && now->before.epoch == position.epoch && now->before.batch == position.batch;
  if (!expected) {
    now = step_at(position);
    begun_now_ = {};
  }
  position = now->after;
  if (!device_.is_cpu()) {
    upcoming_ = step_at(position);
    begun_next_ = begin(upcoming_->examples);
  }
  return std::move(now->examples);
}

std::future<StepBatches::HostBatches> StepBatches::begin(const MicroBatches& examples) const {
  MicroBatches own;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (world_.has(static_cast<int64_t>(i))) own.push_back(examples[i]);
  }
  return std::async(std::launch::async, [make = make_, own = std::move(own)] {
    HostBatches made;
    for (const std::vector<int64_t>& batch : own) made.push_back(make(batch));
    return made;
  });
}

Batch StepBatches::take(const std::vector<int64_t>& examples) {
  if (begun_now_.valid()) ready_ = begun_now_.get();
  if (ready_.empty()) return to_device(make_(examples), device_);
  HostBatch host = std::move(ready_.front());
  ready_.pop_front();
  if (host.batch.examples != examples) throw std::logic_error("a step's batches are taken in their order");
  return to_device(std::move(host), device_);
}

}  // namespace draftsmith::train
