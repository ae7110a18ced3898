// Options structs that `draftsmith help options` explains: an explicit list (option_registry.cpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace draftsmith::cli {

struct OptionSection {
  std::string name;                       // NAME of `draftsmith help options NAME`
  std::function<std::string()> describe;  // describe_options<T>
};

const std::vector<OptionSection>& option_sections();

}  // namespace draftsmith::cli
