#include "distributed/job_world.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/timing.h"
#include "distributed/buckets.h"
#include "distributed/engine.h"
#include "distributed/job_watch.h"
#include "distributed/patient_calls.h"

namespace draftsmith {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Buckets on their way at a time. Each may be a copy, so they bound the memory.
constexpr size_t kFlights = 4;
constexpr const char* kConnecting = "connecting all processes";
constexpr const char* kSumming = "a sum over all processes";
constexpr milliseconds kFirstWait{1}, kLongestWait{50};
// Wait of a process that lost another for the reason, which the other tells before it ends.
constexpr seconds kReasonWait{2};
// The same where an answer did not come in time: the watch may find a little later which process is silent.
constexpr seconds kSilenceWait{5};
// Wait of process 0 at the end for the others to leave.
constexpr seconds kLeaveWait{5};
// Wait of a process that was asked to stop for the others in an exchange, so that all stop at the same place.
constexpr seconds kStopWait{20};

// A bucket on its way; it has no parts where nothing is received.
struct Flight {
  Bucket bucket;
  at::Tensor together;
  Completion done;
};

void land(const Flight& flight) {
  flight.done();
  flight.bucket.unpack(flight.together);
}

struct OwnedBucket {
  int64_t owner = 0;
  Bucket bucket;
};

// Returns the first bucket of each process, then the second of each, and so on: so all send at the same time.
std::vector<OwnedBucket> in_turn(const std::vector<std::vector<at::Tensor>>& by_owner) {
  std::vector<std::vector<Bucket>> all;
  for (const auto& tensors : by_owner) all.push_back(in_buckets(tensors));
  std::vector<OwnedBucket> owned;
  for (size_t turn = 0, before = 0; turn == 0 || owned.size() > before; ++turn) {
    before = owned.size();
    for (size_t owner = 0; owner < all.size(); ++owner) {
      if (turn < all[owner].size()) owned.push_back({static_cast<int64_t>(owner), std::move(all[owner][turn])});
    }
  }
  return owned;
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
    guard(kConnecting, [&] {
      group_ = connect_tensors(*store_, launch, options.timeout, options.device);
      // One that is connected may have nothing to do and leave, which must not end the connecting of another.
      exchange(kConnecting, "");
    });
  }

  ~JobWorld() override {
    watch_.reset();
    group_.reset();
    leave();
  }

  void sum(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> as) override {
    travel(kSumming, in_buckets(tensors, as), [&](const Bucket& bucket) { return begin(bucket); });
  }

  std::function<void()> begin_sum(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> as) override {
    const at::NoGradGuard no_grad;
    std::vector<Flight> flights;
    guard(kSumming, [&] {
      for (const Bucket& bucket : in_buckets(tensors, as)) flights.push_back(begin(bucket));
    });
    return [this, flights = std::move(flights)] {
      const at::NoGradGuard no_grad_at_the_end;
      const Stopwatch watch;
      guard(kSumming, [&] { std::for_each(flights.begin(), flights.end(), land); });
      waited_ += watch.seconds();
    };
  }

  void broadcast_each(const std::vector<std::vector<at::Tensor>>& by_owner) override {
    const std::vector<OwnedBucket> owned = in_turn(by_owner);
    travel("receiving what other processes have", owned, [&](const OwnedBucket& owned_bucket) -> Flight {
      const auto& [owner, bucket] = owned_bucket;
      const bool gives = owner == rank();
      const at::Tensor together = gives ? bucket.packed() : bucket.space();
      return {gives ? Bucket{} : bucket, together, group_->begin_broadcast(together, owner)};
    });
  }

  void transfer(const std::vector<at::Tensor>& tensors, int64_t from, int64_t to) override {
    if (from == to || (rank() != from && rank() != to)) return;
    travel("moving tensors between two processes", in_buckets(tensors), [&](const Bucket& bucket) -> Flight {
      const bool sends = rank() == from;
      const at::Tensor together = sends ? bucket.packed() : bucket.space();
      if (sends) {
        group_->send(together, to);
      } else {
        group_->receive(together, from);
      }
      return {sends ? Bucket{} : bucket, together, [] {}};
    });
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

  Flight begin(const Bucket& bucket) {
    const at::Tensor together = bucket.packed();
    return {bucket, together, group_->begin_sum(together)};
  }

  // Begins a flight for each item, and ends the oldest before there are too many.
  template <class Item, class Begin>
  void travel(const std::string& what, const std::vector<Item>& items, const Begin& begin) {
    const at::NoGradGuard no_grad;
    const Stopwatch watch;
    std::deque<Flight> flights;
    guard(what, [&] {
      for (const Item& item : items) {
        if (flights.size() == kFlights) {
          land(flights.front());
          flights.pop_front();
        }
        flights.push_back(begin(item));
      }
      std::for_each(flights.begin(), flights.end(), land);
    });
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
