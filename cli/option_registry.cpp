#include "cli/option_registry.h"

#include "base/options.h"
#include "cli/common_flags.h"
#include "infer/decode_options.h"
#include "recipes/stage.h"

namespace draftsmith::cli {

const std::vector<OptionSection>& option_sections() {
  // One line for each options struct: {"name", describe_options<Struct>}.
  static const std::vector<OptionSection> list = [] {
    std::vector<OptionSection> sections = {{"run", describe_options<ExecutionOptions>},
                                           {"decoding", describe_options<infer::DecodeOptions>}};
    for (const recipes::StageKind& kind : recipes::stage_kinds())
      sections.push_back({kind.name, kind.describe_options});
    return sections;
  }();
  return list;
}

}  // namespace draftsmith::cli
