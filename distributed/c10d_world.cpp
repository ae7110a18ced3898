// The only file that sees c10d.
#include "distributed/c10d_world.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/timing.h"

namespace draftsmith {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kBucketBytes = int64_t{32} << 20;
constexpr milliseconds kFirstWait{1}, kLongestWait{50};
constexpr seconds kHeartbeat{1};
// How long a process that lost another waits for the reason, which the other tells before it ends.
constexpr seconds kReasonWait{2};
// How long process 0 waits at the end for the others to leave.
constexpr seconds kLeaveWait{5};
// How long a process that was asked to stop waits for the others in an exchange, so that all stop at the same place.
constexpr seconds kStopWait{20};

constexpr const char* kFailed = "failed/";
constexpr const char* kStopped = "stopped/";
constexpr const char* kAlive = "alive/";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string as_text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> as_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

using SharedStore = c10::intrusive_ptr<c10d::Store>;

[[noreturn]] void refuse_store(const Launch& launch, const JoinOptions& options, const std::exception& error) {
  const std::string place = fmt::format("{}:{}", launch.host, launch.port);
  const std::string found = first_line(error.what());
  const bool serves = launch.rank == 0 && !launch.store_exists;
  if (serves && found.find("in use") != std::string::npos) {
    throw UserError({.where = place,
                     .what = "the port of the job is taken",
                     .expected = "a free port on this machine",
                     .found = "another program, perhaps another job, listens there",
                     .hint = "set MASTER_PORT to a free port on all processes (torchrun: --master-port)"});
  }
  throw UserError({.where = place,
                   .what = fmt::format("process {} of {} cannot reach the job's store", launch.rank, launch.size),
                   .expected = fmt::format("process 0, or the launcher, there within {} s", options.timeout.count()),
                   .found = found,
                   .hint = "is MASTER_ADDR right, has process 0 started, and does a firewall let the port through?"});
}

SharedStore open_store(const Launch& launch, const JoinOptions& options, bool may_serve) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<std::uint16_t>(launch.port);
  store.isServer = may_serve && launch.rank == 0 && !launch.store_exists;
  store.waitWorkers = false;
  store.timeout = options.timeout;
  try {
    return c10::make_intrusive<c10d::PrefixStore>("draftsmith/" + launch.attempt + "/",
                                                  c10::make_intrusive<c10d::TCPStore>(launch.host, store));
  } catch (const std::exception& error) {
    refuse_store(launch, options, error);
  }
}

// Tensors that are summed together: one alone, or several small ones as one.
struct Bucket {
  std::vector<at::Tensor> parts;
  at::Tensor together;
};

std::vector<Bucket> in_buckets(const std::vector<at::Tensor>& tensors) {
  std::vector<Bucket> buckets;
  int64_t bytes = kBucketBytes;  // of the open bucket
  for (const at::Tensor& tensor : tensors) {
    const int64_t size = static_cast<int64_t>(tensor.nbytes());
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

// Watches over the job in a thread of its own: tells that this process lives, and asks this process to stop when
// another one failed, was asked to stop or went silent. So a process whose work takes hours ends soon, too.
class Watch {
 public:
  Watch(SharedStore store, int64_t rank, int64_t size, seconds timeout)
      : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout), beats_(static_cast<size_t>(size)) {
    for (auto& beat : beats_) beat.changed = Clock::now();
    thread_ = std::thread([this] { run(); });
  }

  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  // Returns why the job ends, or an empty text.
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  // Waits for a reason for at most `time`.
  std::string await_reason(seconds time) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, time, [this] { return !reason_.empty(); });
    return reason_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Beat {
    std::string value;
    Clock::time_point changed;
  };

  void run() {
    for (int64_t beat = 0;; ++beat) {
      std::string found;
      try {
        store_->set(kAlive + std::to_string(rank_), as_bytes(std::to_string(beat)));
        if (stop_requested() != 0) store_->set(kStopped + std::to_string(rank_), as_bytes("1"));
        found = look();
      } catch (const std::exception& error) {
        found = "the job's store is gone, and with it process 0 or the launcher (" + first_line(error.what()) + ")";
      }
      std::unique_lock lock(mutex_);
      if (!found.empty()) {
        reason_ = found;
        request_stop(SIGTERM);
        wake_.notify_all();
      }
      if (wake_.wait_for(lock, kHeartbeat, [this] { return over_; }) || !reason_.empty()) return;
    }
  }

  // Returns why the job must end, if it must. Passes on that another process was asked to stop.
  std::string look() {
    for (int64_t other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      const std::string name = std::to_string(other);
      if (store_->check({kFailed + name})) {
        return fmt::format("process {} of {} failed: {}", other, size_, as_text(store_->get(kFailed + name)));
      }
      if (stop_requested() == 0 && store_->check({kStopped + name})) {
        log_warning("process {} of {} was asked to stop, so all do", other, size_);
        request_stop(SIGTERM);
      }
      Beat& beat = beats_[static_cast<size_t>(other)];
      std::string value = store_->check({kAlive + name}) ? as_text(store_->get(kAlive + name)) : "";
      if (value != beat.value) beat = {std::move(value), Clock::now()};
      if (Clock::now() - beat.changed > timeout_) {
        return fmt::format("process {} of {} has given no sign of life for {} s", other, size_, timeout_.count());
      }
    }
    return "";
  }

  SharedStore store_;
  int64_t rank_, size_;
  seconds timeout_;
  std::vector<Beat> beats_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string reason_;
  bool over_ = false;
  std::thread thread_;
};

class C10dWorld : public World {
 public:
  C10dWorld(const Launch& launch, const JoinOptions& options)
      : World(launch.rank, launch.size), options_(options), store_(open_store(launch, options, true)) {
    meet();
    // A store of its own: a store takes one call at a time.
    watch_ = std::make_unique<Watch>(open_store(launch, options, false), launch.rank, launch.size, options.timeout);
    group_ = make_group();
  }

  ~C10dWorld() override {
    watch_.reset();
    group_.reset();
    leave();
  }

  void sum(const std::vector<at::Tensor>& tensors) override {
    const at::NoGradGuard no_grad;
    const Stopwatch watch;
    guard("a sum over all processes", [&] {
      std::vector<Bucket> buckets = in_buckets(tensors);
      std::vector<c10::intrusive_ptr<c10d::Work>> running;
      for (Bucket& bucket : buckets) {
        std::vector<at::Tensor> one{bucket.together};
        running.push_back(group_->allreduce(one));
      }
      for (size_t i = 0; i < buckets.size(); ++i) {
        running[i]->wait();
        take_apart(buckets[i]);
      }
    });
    waited_ += watch.seconds();
  }

  void broadcast(const std::vector<at::Tensor>& tensors) override {
    const at::NoGradGuard no_grad;
    const Stopwatch watch;
    guard("receiving what process 0 has", [&] {
      for (const Bucket& bucket : in_buckets(tensors)) {
        std::vector<at::Tensor> one{bucket.together};
        group_->broadcast(one)->wait();
        take_apart(bucket);
      }
    });
    waited_ += watch.seconds();
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
    guard("taking a ticket", [&] { number = store_->add("ticket/" + counter, 1) - 1; });
    return number;
  }

  void fail(const std::string& message) noexcept override {
    try {
      store_->set(kFailed + std::to_string(rank()), as_bytes(message));
    } catch (...) {  // the others see that this process is gone
    }
  }

  std::string reason() const override { return watch_->reason(); }
  double waited() const override { return waited_; }

 private:
  // Waits for all processes at the start, so that one that never comes is named.
  void meet() {
    try {
      store_->set("here/" + std::to_string(rank()), as_bytes("1"));
      std::vector<std::string> keys;
      for (int64_t i = 0; i < size(); ++i) keys.push_back("here/" + std::to_string(i));
      const auto end = std::chrono::steady_clock::now() + options_.timeout;
      for (milliseconds wait = kFirstWait; !store_->check(keys); wait = std::min(2 * wait, kLongestWait)) {
        throw_if_stop_requested("nothing had begun");
        if (std::chrono::steady_clock::now() > end) refuse_missing(keys);
        std::this_thread::sleep_for(wait);
      }
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw lost("the start", error.what());
    }
  }

  [[noreturn]] void refuse_missing(const std::vector<std::string>& keys) {
    std::string missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!store_->check({keys[i]})) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    }
    throw RunError({.where = fmt::format("process {} of {}", rank(), size()),
                    .what = "not all processes of the job have started",
                    .expected = fmt::format("{} processes within {} s", size(), options_.timeout.count()),
                    .found = "no sign of process " + missing,
                    .hint = "look at the output of those processes, or whether the launcher could start them"});
  }

  c10::intrusive_ptr<c10d::Backend> make_group() {
    c10::intrusive_ptr<c10d::Backend> group;
    guard("connecting all processes", [&] {
#ifdef USE_C10D_NCCL
      if (options_.device.is_cuda()) {
        auto nccl = c10d::ProcessGroupNCCL::Options::create();
        nccl->timeout = options_.timeout;
        group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store_, static_cast<int>(rank()), static_cast<int>(size()),
                                                            std::move(nccl));
        group->setTimeout(options_.timeout);
        return;
      }
#endif
      auto gloo = c10d::ProcessGroupGloo::Options::create(options_.timeout);
      const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
      gloo->devices.push_back(interface != nullptr ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                                   : c10d::ProcessGroupGloo::createDefaultDevice());
      group = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, static_cast<int>(rank()), static_cast<int>(size()),
                                                          std::move(gloo));
    });
    return group;
  }

  // The n-th exchange puts texts under n/rank. A process that begins it has finished the one before, for which all had
  // finished the one before that: so nobody reads its text of two exchanges ago any more.
  std::vector<std::string> exchange(const std::string& what, const std::string& text) {
    const int64_t number = exchanges_++;
    const auto key = [](int64_t n, int64_t rank) { return fmt::format("exchange/{}/{}", n, rank); };
    store_->set(key(number, rank()), as_bytes(text));
    if (number >= 2) store_->deleteKey(key(number - 2, rank()));
    std::vector<std::string> keys;
    for (int64_t i = 0; i < size(); ++i) keys.push_back(key(number, i));
    auto stop_seen = std::chrono::steady_clock::now();
    for (milliseconds wait = kFirstWait; !store_->check(keys); wait = std::min(2 * wait, kLongestWait)) {
      if (const std::string reason = watch_->reason(); !reason.empty()) throw ended(what, reason);
      if (stop_requested() == 0) stop_seen = std::chrono::steady_clock::now();
      if (std::chrono::steady_clock::now() - stop_seen > kStopWait) {
        throw_if_stop_requested(what + " was not waited for");
      }
      std::this_thread::sleep_for(wait);
    }
    std::vector<std::string> all;
    for (const auto& bytes : store_->multiGet(keys)) all.push_back(as_text(bytes));
    return all;
  }

  // Process 0, which may serve the store, leaves last; the others would take its end for a failure.
  void leave() noexcept {
    try {
      store_->set(left(rank()), as_bytes("1"));
      if (!leads()) return;
      std::vector<std::string> keys;
      for (int64_t i = 0; i < size(); ++i) keys.push_back(left(i));
      const auto end = std::chrono::steady_clock::now() + kLeaveWait;
      while (!store_->check(keys) && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kFirstWait);
    } catch (...) {  // the store is gone already
    }
  }
  static std::string left(int64_t rank) {
    return "left/" + std::to_string(rank);
  }

  // Runs `work` and turns what c10d throws into an error that says which process was lost, if the store knows it.
  template <class Work>
  void guard(const std::string& what, const Work& work) {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw lost(what, error.what());
    }
  }

  RunError ended(const std::string& what, const std::string& reason) const {
    return RunError({.where = fmt::format("process {} of {}", rank(), size()),
                     .what = "the job ends here: " + reason,
                     .found = "during " + what,
                     .hint = "finished work is kept; the same command goes on from the last checkpoint"});
  }

  RunError lost(const std::string& what, const std::string& found) {
    const std::string reason = watch_ ? watch_->await_reason(kReasonWait) : "";
    if (!reason.empty()) return ended(what, reason);
    return RunError({.where = fmt::format("process {} of {}", rank(), size()),
                     .what = "another process of the job was lost or did not answer in time, during " + what,
                     .expected = fmt::format("an answer within {} s", options_.timeout.count()),
                     .found = first_line(found),
                     .hint = "its own output says why, unless it was killed (memory?); the same command goes on from "
                             "the last checkpoint"});
  }

  JoinOptions options_;
  SharedStore store_;
  std::unique_ptr<Watch> watch_;
  c10::intrusive_ptr<c10d::Backend> group_;
  int64_t exchanges_ = 0;
  double waited_ = 0;
};

}  // namespace

std::unique_ptr<World> join_world(const Launch& launch, const JoinOptions& options) {
  return std::make_unique<C10dWorld>(launch, options);
}

}  // namespace draftsmith
