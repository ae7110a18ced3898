// Where the parameters of a model come from while it is built, under their canonical names
// (model/transformer/parameters.h).
#pragma once

#include <map>
#include <string>

#include "base/aten.h"

namespace draftsmith::model {

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  // A parameter in the type and on the device it is computed with; undefined when the model has none of this name.
  virtual at::Tensor find(const std::string& name) = 0;
  // Like find(), but perhaps in another float type, that in which it is stored: for who converts it on the way.
  virtual at::Tensor unconverted(const std::string& name) { return find(name); }
  // The type that most parameters are computed in.
  virtual at::ScalarType type() const = 0;
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

  at::ScalarType type() const override { return parameters_.at("embedding.weight").scalar_type(); }

 private:
  const std::map<std::string, at::Tensor>& parameters_;
};

}  // namespace draftsmith::model
