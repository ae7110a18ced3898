// Operators draftsmith::NAME of LibTorch's dispatcher, each one launch on a GPU: profiles and tests see them by name.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace draftsmith {

// An operator that one function computes on CPUs and another one on CUDA devices. Given tensors may be undefined.
template <class Result, class... Arguments>
class DeviceOperator {
 public:
  using Function = Result(Arguments...);

  // `schema`: "name(Tensor x, float epsilon) -> Tensor". Each name is registered once in a process.
  DeviceOperator(const std::string& schema, Function* on_cpu, Function* on_gpu)
      : library_(torch::Library::FRAGMENT, "draftsmith", std::nullopt, __FILE__, __LINE__),
        operator_(defined(schema, on_cpu, on_gpu)) {}

  Result operator()(Arguments... arguments) const { return operator_.call(std::forward<Arguments>(arguments)...); }

 private:
  c10::TypedOperatorHandle<Function> defined(const std::string& schema, Function* on_cpu, Function* on_gpu) {
    const std::string name = schema.substr(0, schema.find('('));
    library_.def(schema.c_str());
    library_.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CPU, on_cpu));
    library_.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CUDA, on_gpu));
    const std::string whole = "draftsmith::" + name;
    return c10::Dispatcher::singleton().findSchemaOrThrow(whole.c_str(), "").template typed<Function>();
  }

  torch::Library library_;
  c10::TypedOperatorHandle<Function> operator_;
};

}  // namespace draftsmith
