// Where the parameters of a model come from while it is built, under their canonical names (model/parameters.h).
#pragma once

#include <map>
#include <string>

#include <ATen/ATen.h>

namespace draftsmith::model {

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  // A parameter in the type and on the device it is computed with; undefined when the model has none of this name.
  virtual at::Tensor find(const std::string& name) = 0;
  // A parameter of which only rows are looked up: like find(), but of any float type.
  virtual at::Tensor rows(const std::string& name) { return find(name); }
  // A block has been built: what was read for it may be forgotten.
  virtual void built() {}
};

// Parameters that are in memory already.
class GivenParameters final : public ParameterSource {
 public:
  explicit GivenParameters(const std::map<std::string, at::Tensor>& parameters) : parameters_(parameters) {}
  at::Tensor find(const std::string& name) override {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? at::Tensor() : found->second;
  }

 private:
  const std::map<std::string, at::Tensor>& parameters_;
};

}  // namespace draftsmith::model
