// Reads the pickle of a state dict as a description of its tensors. It runs nothing: it knows the opcodes that
// torch.save uses for dictionaries of tensors, and by name the few functions that these call. Anything else is an
// error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::model {

// A dense tensor as the pickle describes it. Not yet checked against the stored bytes.
struct PickledTensor {
  std::string storage_type;  // "FloatStorage", ...
  std::string record;        // name of the storage's record in the archive
  int64_t offset = 0;        // elements
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// Returns the tensors of a pickled dictionary of names to tensors (or parameters), dict or OrderedDict. Errors:
// std::runtime_error that says what is wrong or unknown.
std::map<std::string, PickledTensor> read_pickled_tensors(std::string_view pickle);

}  // namespace draftsmith::model
