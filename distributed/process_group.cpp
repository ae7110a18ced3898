// The only file that sees c10d.
#include "distributed/process_group.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <random>
#include <thread>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/flatten_dense_tensors.h>
#include <ATen/ops/unflatten_dense_tensors.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "base/error.h"
#include "base/files.h"
#include "base/signals.h"
#include "base/timing.h"
#include "base/util.h"

namespace draftsmith {
namespace {

// ---- The start by a launcher

constexpr int64_t kMostPort = 65535;
constexpr int64_t kMostProcesses = 1 << 16;

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Reads variables and collects what is wrong with them.
class Variables {
 public:
  // Returns a number in the range; `otherwise` stands for a variable that is not set, if it may be absent.
  int64_t number(const std::string& name, int64_t least, int64_t most, std::optional<int64_t> otherwise = {}) {
    const auto text = variable(name);
    if (!text) {
      if (!otherwise) missing(name, "a number");
      return otherwise.value_or(least);
    }
    const auto value = parse_whole<int64_t>(*text);
    if (value && *value >= least && *value <= most) return *value;
    problems_.add({.where = name,
                   .what = "a variable that tells a process its place among several is not usable",
                   .expected = fmt::format("a number from {} to {}", least, most),
                   .found = text->empty() ? "nothing" : *text});
    return least;
  }

  std::string text(const std::string& name, const std::string& what) {
    if (const auto value = variable(name); value && !value->empty()) return *value;
    missing(name, what);
    return "";
  }

  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  void missing(const std::string& name, const std::string& expected) {
    problems_.add({.where = name,
                   .what = "a variable that tells a process its place among several is not set",
                   .expected = expected,
                   .found = "RANK or WORLD_SIZE",
                   .hint = "start with torchrun; or unset the others to run one process"});
  }

  Problems problems_;
};

}  // namespace

std::optional<Launch> find_launch() {
  if (!variable("RANK") && !variable("WORLD_SIZE")) return std::nullopt;
  Variables variables;
  Launch launch;
  launch.size = variables.number("WORLD_SIZE", 1, kMostProcesses);
  launch.rank = variables.number("RANK", 0, launch.size - 1);
  // Whoever sets the variables by hand mostly starts all processes on one machine.
  launch.local_size = variables.number("LOCAL_WORLD_SIZE", 1, launch.size, launch.size);
  launch.local_rank = variables.number("LOCAL_RANK", 0, launch.local_size - 1, launch.rank % launch.local_size);
  if (launch.size > 1) {
    launch.host = variables.text("MASTER_ADDR", "the host of process 0");
    launch.port = variables.number("MASTER_PORT", 1, kMostPort);
  }
  launch.store_exists = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  variables.throw_if_any();
  return launch.size == 1 ? std::nullopt : std::optional(launch);
}

// ---- The group

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kBucketBytes = int64_t{32} << 20;
// Buckets on their way at a time. Each may be a copy, so they bound the memory.
constexpr size_t kFlights = 4;
constexpr milliseconds kFirstWait{1}, kLongestWait{50};
// Wait of process 0 at the end for the others to leave.
constexpr seconds kLeaveWait{5};
// Wait of a process that was asked to stop for the others in an exchange, so that all stop at the same place.
constexpr seconds kStopWait{20};

// Puts tensors into buckets of at most kBucketBytes, in their order: few large messages are faster than many small
// ones. A larger tensor is alone. Buckets depend on types, sizes and devices only.
std::vector<std::vector<at::Tensor>> in_buckets(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> buckets;
  int64_t bytes = 0;  // of the last bucket
  for (const at::Tensor& tensor : tensors) {
    const auto size = static_cast<int64_t>(tensor.nbytes());
    const bool joins = !buckets.empty() && bytes + size <= kBucketBytes &&
                       buckets.back().front().scalar_type() == tensor.scalar_type() &&
                       buckets.back().front().device() == tensor.device();
    if (!joins) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(tensor);
    bytes += size;
  }
  return buckets;
}

[[noreturn]] void refuse_store(const Launch& launch, seconds timeout, const std::exception& error) {
  const std::string place = fmt::format("{}:{}", launch.host, launch.port);
  const std::string text = error.what();
  const std::string found = text.substr(0, text.find('\n'));
  const bool serves = launch.rank == 0 && !launch.store_exists;
  if (serves && found.find("in use") != std::string::npos) {
    throw UserError({.where = place,
                     .what = "the port of the process group is taken",
                     .expected = "a free port on this machine",
                     .found = "another program, perhaps another job, listens there",
                     .hint = "set MASTER_PORT to a free port on all processes (torchrun: --master-port)"});
  }
  throw UserError({.where = place,
                   .what = fmt::format("process {} of {} cannot reach the group's store", launch.rank, launch.size),
                   .expected = fmt::format("process 0, or the launcher, there within {} s", timeout.count()),
                   .found = found,
                   .hint = "is MASTER_ADDR right, has process 0 started, and does a firewall let the port through?"});
}

// Opens the store of texts that all processes see; process 0 serves it unless the launcher does.
c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, seconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.port);
  options.isServer = launch.rank == 0 && !launch.store_exists;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.useLibUV = false;  // whose server asks for each caller's name: five seconds where no name server answers
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(launch.host, options);
    return c10::make_intrusive<c10d::PrefixStore>("draftsmith/", std::move(store));
  } catch (const std::exception& error) {
    refuse_store(launch, timeout, error);
  }
}

c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store, const Launch& launch,
                                          const GroupOptions& group) {
  const int rank = static_cast<int>(launch.rank), size = static_cast<int>(launch.size);
#ifdef USE_C10D_NCCL
  if (group.device.is_cuda()) {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = group.timeout;
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, std::move(options));
  }
#endif
  if (!group.device.is_cpu()) {
    throw UserError({.where = "--device",
                     .what = "this build sums over processes on CPUs only",
                     .expected = "cpu",
                     .found = group.device.str(),
                     .hint = "build where NCCL's header is, which torch's CUDA wheel brings"});
  }
  auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(interface != nullptr ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                                  : c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, std::move(options));
}

}  // namespace

struct ProcessGroup::Connection {
  // A bucket on its way.
  struct Flight {
    std::vector<at::Tensor> bucket, packed;
    c10::intrusive_ptr<c10d::Work> work;
  };
  using Operation = std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>& one)>;

  int64_t rank, size;
  bool serves;  // the store, for as long as this process lives
  seconds timeout;
  c10::intrusive_ptr<c10d::Store> store = {};
  c10::intrusive_ptr<c10d::Backend> backend = {};
  int64_t exchanges = 0;
  double waited = 0;

  std::vector<std::string> keys_of(const std::string& prefix) const {
    std::vector<std::string> keys;
    for (int64_t i = 0; i < size; ++i) keys.push_back(fmt::format("{}/{}", prefix, i));
    return keys;
  }
  void put(const std::string& key, const std::string& text) {
    store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  }
  std::string place() const { return fmt::format("process {} of {}", rank, size); }

  // Runs `work`, and turns what c10d throws into an error that says what it was for.
  template <class Work>
  void guard(const std::string& what, const Work& work) {
    const Stopwatch watch;
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string found = error.what();
      throw RunError({.where = place(),
                      .what = "another process of the group was lost or did not answer in time, during " + what,
                      .expected = fmt::format("an answer within {} s", timeout.count()),
                      .found = found.substr(0, found.find('\n')),
                      .hint = "its own output says why, unless it was killed (memory?); the same command goes on from "
                              "the last checkpoint"});
    }
    waited += watch.seconds();
  }

  // Runs an operation on all tensors, some buckets at a time.
  void run(const std::string& what, const std::vector<at::Tensor>& tensors, const Operation& operation) {
    const at::NoGradGuard no_grad;
    guard(what, [&] {
      std::deque<Flight> flights;
      const auto land = [&] {
        auto& [bucket, packed, work] = flights.front();
        work->wait();
        if (!packed.front().is_alias_of(bucket.front())) {
          at::_foreach_copy_(bucket, at::unflatten_dense_tensors(packed.front(), bucket));
        }
        flights.pop_front();
      };
      for (const auto& bucket : in_buckets(tensors)) {
        if (flights.size() == kFlights) land();
        std::vector<at::Tensor> packed{at::flatten_dense_tensors(bucket)};  // a view of one contiguous tensor
        auto work = operation(packed);
        flights.push_back({bucket, std::move(packed), std::move(work)});
      }
      while (!flights.empty()) land();
    });
  }

  // Gives the store a part of its own for the processes of this start: a launcher's store keeps the texts of earlier
  // starts, and torchrun counts restarts on each machine by itself. Process 0 lists the names that all gave themselves,
  // until all found their own in one list.
  void agree(const std::string& what) {
    std::random_device random;
    const std::string own = fmt::format("{:08x}{:08x}", random(), random());
    const auto names = keys_of("name");
    put(names[static_cast<size_t>(rank)], own);
    std::vector<std::string> awaited = names;
    const auto begin = Clock::now();
    for (milliseconds wait = kFirstWait;; wait = std::min(2 * wait, kLongestWait)) {
      if (Clock::now() - begin > timeout) refuse_missing(what, awaited, timeout);
      throw_if_stop_requested(what + " was not waited for");
      if (rank == 0 && store->check(names)) {
        std::string all;
        for (const auto& name : store->multiGet(names)) all.append(name.begin(), name.end());
        put("list", all);
      }
      std::this_thread::sleep_for(wait);
      if (!store->check({"list"})) continue;
      const auto bytes = store->get("list");
      const std::string list(bytes.begin(), bytes.end());
      const auto mine = own.size() * static_cast<size_t>(rank);
      if (list.size() != own.size() * names.size() || list.compare(mine, own.size(), own) != 0) continue;
      const std::string start = sha256(list);
      awaited = keys_of(start);
      put(awaited[static_cast<size_t>(rank)], "1");
      if (!store->check(awaited)) continue;
      store = c10::make_intrusive<c10d::PrefixStore>(start + "/", store);
      return;
    }
  }

  // Returns the texts of all processes. The n-th exchange puts texts under n/rank. A process that begins it has
  // finished the one before, for which all had finished the one before that: so nobody reads its text of two exchanges
  // ago.
  std::vector<std::string> exchange(const std::string& what, const std::string& text, std::optional<seconds> limit,
                                    seconds stop_wait = kStopWait) {
    std::vector<std::string> all;
    guard(what, [&] {
      const int64_t number = exchanges++;
      const auto own = [&](int64_t n) { return fmt::format("exchange/{}/{}", n, rank); };
      put(own(number), text);
      if (number >= 2) store->deleteKey(own(number - 2));
      const auto keys = keys_of(fmt::format("exchange/{}", number));
      const auto begin = Clock::now();
      auto last_without_stop = begin;
      for (milliseconds wait = kFirstWait; !store->check(keys); wait = std::min(2 * wait, kLongestWait)) {
        const auto now = Clock::now();
        if (limit && now - begin > *limit) refuse_missing(what, keys, *limit);
        if (stop_requested() == 0) last_without_stop = now;
        if (now - last_without_stop > stop_wait) throw_if_stop_requested(what + " was not waited for");
        std::this_thread::sleep_for(wait);
      }
      for (const auto& bytes : store->multiGet(keys)) all.emplace_back(bytes.begin(), bytes.end());
    });
    return all;
  }

  [[noreturn]] void refuse_missing(const std::string& what, const std::vector<std::string>& keys, seconds limit) {
    std::string missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!store->check({keys[i]})) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    }
    throw RunError({.where = place(),
                    .what = "not all processes of the group came to " + what,
                    .expected = fmt::format("{} processes within {} s", size, limit.count()),
                    .found = "no sign of process " + missing,
                    .hint = "look at the output of those processes, or whether the launcher could start them"});
  }

  // Process 0 leaves last if it serves the store, whose end the others would take for a failure.
  void leave() noexcept {
    try {
      const auto keys = keys_of("left");
      put(keys[static_cast<size_t>(rank)], "1");
      if (!serves) return;
      const auto end = Clock::now() + kLeaveWait;
      while (!store->check(keys) && Clock::now() < end) std::this_thread::sleep_for(kFirstWait);
    } catch (...) {  // the store is gone already
    }
  }
};

ProcessGroup& ProcessGroup::single() {
  static ProcessGroup group;
  return group;
}

ProcessGroup::ProcessGroup() = default;

ProcessGroup::ProcessGroup(const Launch& launch, const GroupOptions& options)
    : rank_(launch.rank),
      size_(launch.size),
      connection_(new Connection{.rank = launch.rank,
                                 .size = launch.size,
                                 .serves = launch.rank == 0 && !launch.store_exists,
                                 .timeout = options.timeout}) {
  Connection& own = *connection_;
  own.store = open_store(launch, options.timeout);
  own.guard("the start", [&] { own.agree("the start"); });
  const std::string what = "connecting all processes";
  own.guard(what, [&] { own.backend = connect(own.store, launch, options); });
  // One that is connected may have nothing to do and leave, which must not end the connecting of another.
  own.exchange(what, "", options.timeout);
}

ProcessGroup::~ProcessGroup() {
  if (!connection_) return;
  connection_->backend.reset();
  connection_->leave();
}

void ProcessGroup::sum(const std::vector<at::Tensor>& tensors) {
  if (!connection_) return;
  connection_->run("a sum over all processes", tensors,
                   [&](std::vector<at::Tensor>& one) { return connection_->backend->allreduce(one); });
}

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors) {
  if (!connection_) return;
  connection_->run("receiving what process 0 has", tensors,
                   [&](std::vector<at::Tensor>& one) { return connection_->backend->broadcast(one); });
}

std::vector<std::string> ProcessGroup::gather(const std::string& what, const std::string& text) {
  return connection_ ? connection_->exchange(what, text, connection_->timeout) : std::vector<std::string>{text};
}

std::string ProcessGroup::from_leader(const std::string& what, const std::string& text) {
  return gather(what, leads() ? text : "").front();
}

void ProcessGroup::require_same(const std::string& what, const std::string& value) {
  const auto all = gather("comparing " + what, value);
  std::string others;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != all.front()) others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", i, all[i]);
  }
  if (others.empty()) return;
  throw UserError({.where = connection_->place(),
                   .what = "the processes of one group differ in " + what,
                   .expected = "on all, as on process 0: " + all.front(),
                   .found = "on process " + others,
                   .hint = "start all with the same program, recipe, flags and data"});
}

void ProcessGroup::wait_for_all(const std::string& what) {
  if (connection_) connection_->exchange(what, "", {}, seconds(0));
}

std::vector<nlohmann::json> ProcessGroup::gather_parts(const std::string& what,
                                                       const std::function<nlohmann::json()>& part) {
  if (!connection_) return {part()};
  nlohmann::json own;
  try {
    own["part"] = part();
  } catch (const Interrupted& stop) {
    own = {{"stopped", stop.problems().front().hint}};
  }
  std::vector<nlohmann::json> parts;
  for (const std::string& text : connection_->exchange(what, own.dump(), {})) {
    const nlohmann::json one = nlohmann::json::parse(text);
    if (one.contains("stopped")) {
      request_stop(SIGTERM);
      throw_if_stop_requested(one.at("stopped").get<std::string>());
    }
    parts.push_back(one.at("part"));
  }
  return parts;
}

double ProcessGroup::waited() const {
  return connection_ ? connection_->waited : 0;
}

}  // namespace draftsmith
