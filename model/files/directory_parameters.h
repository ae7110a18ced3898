// The parameters of an opened model directory, read one at a time, converted to the computing type and moved to the
// device.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "model/files/model_directory.h"
#include "model/layers/parameter_source.h"

namespace draftsmith::model {

// Returns the type of one parameter in a model of type `dtype`: in fp16 some stay fp32.
at::ScalarType parameter_dtype(const TransformerConfig& config, const std::string& parameter, at::ScalarType dtype);

// Parameters that need no conversion are not copied: they are views of the mapped files and must not be written to.
class DirectoryParameters final : public ParameterSource {
 public:
  // Parameters of a model in `dtype`; if it is loaded for decoding, in number_type() of it.
  DirectoryParameters(const ModelDirectory& directory, at::Device device, at::ScalarType dtype, bool for_decoding);

  at::Tensor find(const std::string& name) override;
  // Like find(), but always returns memory of its own.
  at::Tensor copy(const std::string& name);
  // Returns the parameter as stored if others are fp32 on the CPU, otherwise as find().
  at::Tensor unconverted(const std::string& name) override;
  at::ScalarType type() const override { return dtype_; }
  // Releases the pages of the files that were read so far.
  void built() override;

 private:
  // Returns the parameter as stored, perhaps strided; undefined if there is none.
  at::Tensor stored(const std::string& name);

  const ModelDirectory& directory_;
  at::Device device_;
  at::ScalarType dtype_;
  at::ScalarType numbers_;  // the type of parameters that are not packed
  std::map<std::string, const ModelDirectory::Stored*> parameters_;
  std::string last_name_;  // the stored tensor that was read last: often several parameters are joined in one
  at::Tensor last_;
};

}  // namespace draftsmith::model
