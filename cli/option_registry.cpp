#include "cli/option_registry.h"

#include "base/options.h"
#include "cli/common_flags.h"

namespace draftsmith::cli {

const std::vector<OptionSection>& option_sections() {
  // One line for each options struct: {"name", describe_options<Struct>}.
  static const std::vector<OptionSection> list = {
      {"run", describe_options<RunOptions>},
  };
  return list;
}

}  // namespace draftsmith::cli
