// Names that suites, settings and results share.
#pragma once

namespace draftsmith::evaluate {

// Name of the suite's own model; a setting's other models are named like the suite's drafters.
inline constexpr const char* kTargetName = "target";

// Label of greedy decoding of the target: every suite's first setting.
inline constexpr const char* kGreedyLabel = "greedy";

}  // namespace draftsmith::evaluate
