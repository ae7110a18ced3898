#include "distributed/job_world.h"

#include <algorithm>
#include <thread>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/timing.h"
#include "distributed/engine.h"
#include "distributed/job_watch.h"
#include "distributed/patient_calls.h"

namespace draftsmith {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kBucketBytes = int64_t{32} << 20;
constexpr milliseconds kFirstWait{1}, kLongestWait{50};
// Wait of a process that lost another for the reason, which the other tells before it ends.
constexpr seconds kReasonWait{2};
// The same where an answer did not come in time: the watch may find a little later which process is silent.
constexpr seconds kSilenceWait{5};
// Wait of process 0 at the end for the others to leave.
constexpr seconds kLeaveWait{5};
// Wait of a process that was asked to stop for the others in an exchange, so that all stop at the same place.
constexpr seconds kStopWait{20};

// Tensors that travel together: one alone, or several small ones as one.
struct Bucket {
  std::vector<at::Tensor> parts;
  at::Tensor together;
};

std::vector<Bucket> in_buckets(const std::vector<at::Tensor>& tensors) {
  std::vector<Bucket> buckets;
  int64_t bytes = kBucketBytes;  // of the open bucket
  for (const at::Tensor& tensor : tensors) {
    const auto size = static_cast<int64_t>(tensor.nbytes());
    const bool joins = bytes + size <= kBucketBytes && buckets.back().parts.front().dtype() == tensor.dtype() &&
                       buckets.back().parts.front().device() == tensor.device();
    if (!joins) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().parts.push_back(tensor);
    bytes += size;
  }
  for (Bucket& bucket : buckets) {
    if (bucket.parts.size() == 1 && bucket.parts.front().is_contiguous()) {
      bucket.together = bucket.parts.front();
      continue;
    }
    std::vector<at::Tensor> flat;
    for (const at::Tensor& part : bucket.parts) flat.push_back(part.reshape({-1}));
    bucket.together = at::cat(flat);
  }
  return buckets;
}

void take_apart(const Bucket& bucket) {
  if (bucket.together.is_same(bucket.parts.front())) return;
  int64_t begin = 0;
  for (const at::Tensor& part : bucket.parts) {
    at::Tensor target = part;
    target.copy_(bucket.together.narrow(0, begin, part.numel()).view_as(part));
    begin += part.numel();
  }
}

std::vector<std::string> keys_of(const std::string& prefix, int64_t size) {
  std::vector<std::string> keys;
  for (int64_t i = 0; i < size; ++i) keys.push_back(fmt::format("{}/{}", prefix, i));
  return keys;
}

class JobWorld : public World {
 public:
  JobWorld(const Launch& launch, const JoinOptions& options)
      : World(launch.rank, launch.size), options_(options), store_(open_store(launch, options.timeout, true)) {
    meet();
    watch_ = std::make_unique<JobWatch>(open_store(launch, options.timeout, false), launch, options.timeout);
    guard("connecting all processes",
          [&] { group_ = connect_tensors(*store_, launch, options.timeout, options.device); });
  }

  ~JobWorld() override {
    watch_.reset();
    group_.reset();
    leave();
  }

  void sum(const std::vector<at::Tensor>& tensors) override {
    travel("a sum over all processes", tensors, [&](const auto& together) { group_->sum(together); });
  }

  void broadcast(const std::vector<at::Tensor>& tensors) override {
    travel("receiving what process 0 has", tensors, [&](const auto& together) { group_->broadcast(together); });
  }

  std::vector<std::string> gather(const std::string& what, const std::string& text) override {
    const Stopwatch watch;
    std::vector<std::string> all;
    guard(what, [&] { all = exchange(what, text); });
    waited_ += watch.seconds();
    return all;
  }

  int64_t ticket(const std::string& counter) override {
    int64_t number = 0;
    guard("taking a ticket", [&] { number = store_->count("ticket/" + counter); });
    return number;
  }

  void fail(const std::string& message) noexcept override {
    if (lost_) return;  // what this process reports is another's failure
    try {
      JobWatch::tell_failure(*store_, rank(), message);
    } catch (...) {  // the others see that this process is gone
    }
  }

  std::string reason() const override { return watch_->reason(); }
  double waited() const override { return waited_; }

 private:
  // Waits for all processes at the start, so that one that never comes is named.
  void meet() {
    guard("the start", [&] {
      const auto keys = keys_of("here", size());
      store_->set(keys[static_cast<size_t>(rank())], "1");
      const auto end = Clock::now() + options_.timeout;
      for (milliseconds wait = kFirstWait; !store_->has(keys); wait = std::min(2 * wait, kLongestWait)) {
        throw_if_stop_requested("nothing had begun");
        if (Clock::now() > end) refuse_missing(keys);
        std::this_thread::sleep_for(wait);
      }
    });
  }

  [[noreturn]] void refuse_missing(const std::vector<std::string>& keys) {
    std::string missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!store_->has({keys[i]})) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    }
    throw RunError({.where = place(),
                    .what = "not all processes of the job have started",
                    .expected = fmt::format("{} processes within {} s", size(), options_.timeout.count()),
                    .found = "no sign of process " + missing,
                    .hint = "look at the output of those processes, or whether the launcher could start them"});
  }

  template <class Operation>
  void travel(const std::string& what, const std::vector<at::Tensor>& tensors, const Operation& operation) {
    const at::NoGradGuard no_grad;
    const Stopwatch watch;
    const std::vector<Bucket> buckets = in_buckets(tensors);
    std::vector<at::Tensor> together;
    for (const Bucket& bucket : buckets) together.push_back(bucket.together);
    guard(what, [&] { operation(together); });
    for (const Bucket& bucket : buckets) take_apart(bucket);
    waited_ += watch.seconds();
  }

  // The n-th exchange puts texts under n/rank. A process that begins it has finished the one before, for which all had
  // finished the one before that: so nobody reads its text of two exchanges ago any more.
  std::vector<std::string> exchange(const std::string& what, const std::string& text) {
    const int64_t number = exchanges_++;
    const auto own = [&](int64_t n) { return fmt::format("exchange/{}/{}", n, rank()); };
    store_->set(own(number), text);
    if (number >= 2) store_->remove(own(number - 2));
    const auto keys = keys_of(fmt::format("exchange/{}", number), size());
    auto last_without_stop = Clock::now();
    for (milliseconds wait = kFirstWait; !store_->has(keys); wait = std::min(2 * wait, kLongestWait)) {
      if (const std::string reason = watch_->reason(); !reason.empty()) throw ended(what, reason);
      if (stop_requested() == 0) last_without_stop = Clock::now();
      if (Clock::now() - last_without_stop > kStopWait) throw_if_stop_requested(what + " was not waited for");
      std::this_thread::sleep_for(wait);
    }
    return store_->get(keys);
  }

  // Process 0, which may serve the store, leaves last; the others would take its end for a failure.
  void leave() noexcept {
    try {
      const auto keys = keys_of("left", size());
      store_->set(keys[static_cast<size_t>(rank())], "1");
      if (!leads()) return;
      const auto end = Clock::now() + kLeaveWait;
      while (!store_->has(keys) && Clock::now() < end) std::this_thread::sleep_for(kFirstWait);
    } catch (...) {  // the store is gone already
    }
  }

  // Runs `work`, unless the job must end already, and turns what the engine throws into an error that says which
  // process was lost, if the store knows it.
  template <class Work>
  void guard(const std::string& what, const Work& work) {
    if (const std::string reason = watch_ ? watch_->reason() : ""; !reason.empty()) throw ended(what, reason);
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const NoAnswer& silence) {
      throw ended(what, silence.what());
    } catch (const std::exception& error) {
      throw lost(what, error.what());
    }
  }

  std::string place() const { return fmt::format("process {} of {}", rank(), size()); }

  RunError ended(const std::string& what, const std::string& reason) {
    lost_ = true;
    return RunError({.where = place(),
                     .what = "the job ends here: " + reason,
                     .found = "during " + what,
                     .hint = "finished work is kept; the same command goes on from the last checkpoint"});
  }

  RunError lost(const std::string& what, const std::string& found) {
    const bool late = found.find("imed out") != std::string::npos || found.find("imeout") != std::string::npos;
    const std::string reason = watch_ ? watch_->await_reason(late ? kSilenceWait : kReasonWait) : "";
    if (!reason.empty()) return ended(what, reason);
    lost_ = true;
    return RunError({.where = place(),
                     .what = "another process of the job was lost or did not answer in time, during " + what,
                     .expected = fmt::format("an answer within {} s", options_.timeout.count()),
                     .found = found.substr(0, found.find('\n')),
                     .hint = "its own output says why, unless it was killed (memory?); the same command goes on from "
                             "the last checkpoint"});
  }

  JoinOptions options_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<JobWatch> watch_;
  std::unique_ptr<TensorGroup> group_;
  int64_t exchanges_ = 0;
  double waited_ = 0;
  bool lost_ = false;  // another process
};

}  // namespace

std::unique_ptr<World> join_world(const Launch& launch, const JoinOptions& options) {
  return std::make_unique<JobWorld>(launch, options);
}

}  // namespace draftsmith
