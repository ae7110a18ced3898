// The only file that sees c10d.
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "base/error.h"
#include "distributed/engine.h"
#include "distributed/patient_calls.h"

namespace draftsmith {

namespace {

std::string as_text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> as_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// Returns the message for a store that gives no answer.
std::string silence_of(const Launch& launch, std::chrono::seconds timeout) {
  const std::string server = launch.store_exists ? "the launcher" : fmt::format("process 0 of {}", launch.size);
  return fmt::format("{}, which serves the job's store, has given no answer for {} s", server, timeout.count());
}

class C10dStore : public JobStore {
 public:
  C10dStore(c10::intrusive_ptr<c10d::Store> store, const Launch& launch, std::chrono::seconds timeout)
      : store_(std::move(store)), calls_(timeout, silence_of(launch, timeout)) {}
  void set(const std::string& key, const std::string& text) override {
    calls_.run([store = store_, key, bytes = as_bytes(text)] { store->set(key, bytes); });
  }
  bool has(const std::vector<std::string>& keys) override {
    return calls_.run([store = store_, keys] { return store->check(keys); });
  }
  std::vector<std::string> get(const std::vector<std::string>& keys) override {
    std::vector<std::string> texts;
    for (const auto& bytes : calls_.run([store = store_, keys] { return store->multiGet(keys); })) {
      texts.push_back(as_text(bytes));
    }
    return texts;
  }
  void remove(const std::string& key) override {
    calls_.run([store = store_, key] { return store->deleteKey(key); });
  }
  int64_t count(const std::string& key) override {
    return calls_.run([store = store_, key] { return store->add(key, 1) - 1; });
  }
  const c10::intrusive_ptr<c10d::Store>& c10d_store() const { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  PatientCalls calls_;
};

class C10dGroup : public TensorGroup {
 public:
  explicit C10dGroup(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  Completion begin_sum(const at::Tensor& tensor) override {
    std::vector<at::Tensor> one{tensor};
    return completion(backend_->allreduce(one));
  }

  Completion begin_broadcast(const at::Tensor& tensor, int64_t from) override {
    std::vector<at::Tensor> one{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    return completion(backend_->broadcast(one, options));
  }

  void send(const at::Tensor& tensor, int64_t to) override {
    std::vector<at::Tensor> one{tensor};
    backend_->send(one, static_cast<int>(to), kTag)->wait();
  }

  void receive(const at::Tensor& tensor, int64_t from) override {
    std::vector<at::Tensor> one{tensor};
    backend_->recv(one, static_cast<int>(from), kTag)->wait();
  }

 private:
  static constexpr int kTag = 0;  // messages between two processes arrive in their order

  static Completion completion(c10::intrusive_ptr<c10d::Work> work) {
    return [work = std::move(work)] { work->wait(); };
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
};

[[noreturn]] void refuse_store(const Launch& launch, std::chrono::seconds timeout, const std::exception& error) {
  const std::string place = fmt::format("{}:{}", launch.host, launch.port);
  const std::string text = error.what();
  const std::string found = text.substr(0, text.find('\n'));
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
                   .expected = fmt::format("process 0, or the launcher, there within {} s", timeout.count()),
                   .found = found,
                   .hint = "is MASTER_ADDR right, has process 0 started, and does a firewall let the port through?"});
}

}  // namespace

std::unique_ptr<JobStore> open_store(const Launch& launch, std::chrono::seconds timeout, bool may_serve) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.port);
  options.isServer = may_serve && launch.rank == 0 && !launch.store_exists;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.useLibUV = false;  // whose server asks for each caller's name: five seconds where no name server answers
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(launch.host, options);
    return std::make_unique<C10dStore>(
        c10::make_intrusive<c10d::PrefixStore>("draftsmith/" + launch.attempt + "/", std::move(store)), launch,
        timeout);
  } catch (const std::exception& error) {
    refuse_store(launch, timeout, error);
  }
}

std::unique_ptr<TensorGroup> connect_tensors(JobStore& store, const Launch& launch, std::chrono::seconds timeout,
                                             at::Device device) {
  const auto& c10d_store = dynamic_cast<C10dStore&>(store).c10d_store();
  const int rank = static_cast<int>(launch.rank), size = static_cast<int>(launch.size);
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    return std::make_unique<C10dGroup>(
        c10::make_intrusive<c10d::ProcessGroupNCCL>(c10d_store, rank, size, std::move(options)));
  }
#endif
  if (!device.is_cpu()) {
    throw UserError({.where = "--device",
                     .what = "this build sums over processes on CPUs only",
                     .expected = "cpu",
                     .found = device.str(),
                     .hint = "build where NCCL's header is, which torch's CUDA wheel brings"});
  }
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(interface != nullptr ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                                  : c10d::ProcessGroupGloo::createDefaultDevice());
  return std::make_unique<C10dGroup>(
      c10::make_intrusive<c10d::ProcessGroupGloo>(c10d_store, rank, size, std::move(options)));
}

}  // namespace draftsmith
