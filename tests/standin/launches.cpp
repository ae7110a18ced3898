// Operators as launches: each runs on the CPU and, in a recording, is kept to be run again.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/Functions.h>

#include "tests/standin/internals.h"
#include "tests/standin/standin.h"

namespace draftsmith::standin {
namespace {

struct Counter {
  std::mutex mutex;
  Counts counts;
};

Counter& counter() {
  static Counter* one = new Counter;
  return *one;
}

// Operators whose results' values or sizes the host needs, and those that read index tensors of the host.
constexpr std::string_view kWaited[] = {"nonzero",           "masked_select",      "equal",      "_unique2",
                                        "repeat_interleave", "unique_consecutive", "unique_dim", "bincount"};
constexpr std::string_view kIndexed[] = {"index", "index_put_", "_index_put_impl_", "index_put"};

template <size_t N>
bool is_among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(names, names + N, name) != names + N;
}

std::string name_of(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;  // "aten::mm"
  return name.substr(name.find("::") + 2);
}

bool on_device(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

at::Tensor to_device(const at::Tensor& host) {
  if (!host.defined() || on_device(host)) return host;
  const at::Tensor source = host.is_non_overlapping_and_dense() ? host : host.contiguous();
  at::Tensor result = at::empty_strided(source.sizes(), source.strides(), source.options().device(device()));
  if (source.nbytes() == 0) return result;
  std::memcpy(DeviceMemory::instance().readable(result.data_ptr()), source.const_data_ptr(), source.nbytes());
  return result;
}

// Returns the launches of the present recording.
std::optional<Recording::Launches>& recorded() {
  static auto* one = new std::optional<Recording::Launches>;
  return *one;
}

void forbid_in_recordings(const std::string& what) {
  if (recorded()) throw std::logic_error(what + " cannot be recorded");
}

// Returns a value whose tensors are converted.
template <class Convert>
c10::IValue converted(const c10::IValue& value, const Convert& convert) {
  if (value.isTensor()) return convert(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& one : value.toTensorVector()) list.push_back(convert(one));
    return list;
  }
  if (!value.isOptionalTensorList()) return value;
  c10::List<std::optional<at::Tensor>> list;
  for (const std::optional<at::Tensor>& one : value.toOptionalTensorList()) {
    list.push_back(one ? std::optional(convert(*one)) : std::nullopt);
  }
  return list;
}

// Copies a result to where the recorded one lies.
void copy_again(const c10::IValue& from, const c10::IValue& to) {
  if (to.isTensor() && to.toTensor().defined()) to.toTensor().copy_(from.toTensor());
  if (!to.isTensorList()) return;
  const auto source = from.toTensorVector();
  const auto target = to.toTensorVector();
  for (size_t i = 0; i < source.size(); ++i) target[i].copy_(source[i]);
}

void run_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const torch::jit::Stack kept = stack;  // of several outputs LibTorch takes results after it has dropped arguments
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
}

// An operator's run: its arguments on the CPU, and what they were.
class Run {
 public:
  Run(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), name_(name_of(op)), stack_(stack) {
    first_ = stack.size() - op.schema().arguments().size();
    originals_.assign(stack.begin() + static_cast<std::ptrdiff_t>(first_), stack.end());
  }

  void operator()() {
    count_launch(name_);
    if (is_among(kWaited, name_)) count_wait();
    compute();
    torch::jit::Stack results;  // views of where new results go, and none for arguments that were written
    const auto& returns = op_.schema().returns();
    for (size_t i = 0; i < returns.size(); ++i) {
      c10::IValue& value = stack_[first_ + i];
      const auto* alias = returns[i].alias_info();
      value = alias != nullptr ? aliased(*alias) : converted(value, to_device);
      if (recorded()) results.push_back(alias != nullptr ? c10::IValue() : converted(value, readable_view));
    }
    if (!recorded()) return;
    torch::jit::Stack arguments;  // views of device memory; outputs have their sizes now
    for (const c10::IValue& value : originals_) arguments.push_back(argument(value, readable_view));
    record([op = op_, arguments = std::move(arguments), results = std::move(results)] {
      torch::jit::Stack stack = arguments;
      run_kernel(op, stack);
      for (size_t i = 0; i < results.size(); ++i) copy_again(stack[i], results[i]);
    });
  }

 private:
  // Leaves the kernel's results on the stack.
  void compute() {
    for (size_t i = 0; i < originals_.size(); ++i) {
      const auto* alias = op_.schema().arguments()[i].alias_info();
      const bool written = alias != nullptr && alias->isWrite();
      stack_[first_ + i] = argument(
          originals_[i], [&](const at::Tensor& given) { return written ? output(given) : readable_alias(given); });
    }
    run_kernel(op_, stack_);
    for (const auto& [host, original] : grown_) {
      if (host.numel() == 0) continue;
      original.resize_(host.sizes());
      readable_alias(original).copy_(host);
    }
  }

  // Returns an argument for the CPU; `alias` gives what takes a device tensor's place.
  template <class Alias>
  c10::IValue argument(const c10::IValue& value, const Alias& alias) const {
    if (value.isDevice()) return c10::Device(at::kCPU);
    return converted(value, [&](const at::Tensor& given) {
      if (!given.defined()) return given;
      if (on_device(given)) return alias(given);
      if (given.dim() == 0 || is_among(kIndexed, name_)) return given;
      throw std::logic_error("operator " + name_ + ": a tensor of the host among those of the device");
    });
  }

  // Returns what the kernel writes to. It may give an empty output another size.
  at::Tensor output(const at::Tensor& given) {
    if (given.numel() > 0) return readable_alias(given);
    grown_.emplace_back(at::empty({0}, given.options().device(at::kCPU)), given);
    return grown_.back().first;
  }

  // Returns the argument that a result aliases.
  const c10::IValue& aliased(const c10::AliasInfo& alias) const {
    for (size_t i = 0; i < originals_.size(); ++i) {
      const auto* own = op_.schema().arguments()[i].alias_info();
      if (alias.isWrite() && own != nullptr && own->beforeSets() == alias.beforeSets()) return originals_[i];
    }
    throw std::logic_error("operator " + name_ + " returns a view that the stand-in accelerator does not know");
  }

  c10::OperatorHandle op_;
  std::string name_;
  torch::jit::Stack& stack_;
  size_t first_ = 0;
  std::vector<c10::IValue> originals_;
  std::vector<std::pair<at::Tensor, at::Tensor>> grown_;  // empty outputs: on the host, and as given
};

}  // namespace

Counts counts() {
  const std::scoped_lock lock(counter().mutex);
  return counter().counts;
}

void reset_counts() {
  const std::scoped_lock lock(counter().mutex);
  counter().counts = {};
}

void count_launch(const std::string& name) {
  const std::scoped_lock lock(counter().mutex);
  ++counter().counts.launches[name];
}

void count_copy(bool to_device, bool waits) {
  forbid_in_recordings("a copy between host and device");
  const std::scoped_lock lock(counter().mutex);
  ++(to_device ? counter().counts.copies_to_device : counter().counts.copies_to_host);
  if (waits) ++counter().counts.waits;
}

void count_wait() {
  forbid_in_recordings("a wait for the device");
  const std::scoped_lock lock(counter().mutex);
  ++counter().counts.waits;
}

Recording::Recording(MemoryPool& pool) {
  if (recorded()) throw std::logic_error("something is being recorded already");
  recorded().emplace();
  DeviceMemory::instance().begin_recording(pool);
}

Recording::~Recording() {
  recorded().reset();
  DeviceMemory::instance().end_recording();
}

Recording::Launches Recording::take() {
  return std::exchange(*recorded(), {});
}

void record(std::function<void()> launch) {
  if (recorded()) recorded()->push_back(std::move(launch));
}

at::Tensor readable_alias(const at::Tensor& tensor) {
  void* memory = DeviceMemory::instance().readable(tensor.data_ptr());
  return at::from_blob(
      memory, tensor.sizes(), tensor.strides(), [tensor](void*) {}, tensor.options().device(at::kCPU), at::kCPU);
}

at::Tensor readable_view(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  void* memory = DeviceMemory::instance().readable(tensor.data_ptr());
  return at::from_blob(memory, tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Run(op, *stack)();
}

}  // namespace draftsmith::standin
