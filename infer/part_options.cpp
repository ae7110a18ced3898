#include "infer/part_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::infer {

std::vector<PartOption> part_options(const DecodeOptions& options) {
  std::vector<PartOption> list;
  const auto add = [&](const char* name, const char* part, const std::string& own,
                       const std::vector<std::string>& rules) {
    const bool used = std::find(rules.begin(), rules.end(), own) != rules.end();
    list.push_back({name, used, fmt::format("{} {}", part, fmt::join(rules, ", "))});
  };
  const auto method = [&](const char* name, const char* reader) { add(name, "method", options.method, {reader}); };
  const auto window = [&, own = options.window_rule_name()](const char* name, const std::vector<std::string>& rules) {
    add(name, "window_rule", own, rules);
  };
  const auto acceptance = [&, own = options.acceptance_name()](const char* name, const char* rule) {
    add(name, "acceptance", own, {rule});
  };
  window("window", {"fixed", "dynamic"});
  window("schedule", {"dynamic"});
  window("confidence", {"dynamic"});
  window("fallback", {"fallback"});
  window("max_draft", {"fallback", "entropy", "router", "oracle"});
  window("max_entropy", {"entropy"});
  window("router", {"router"});
  window("threshold", {"router"});
  acceptance("rollback", "rollback");
  acceptance("rollback_rule", "rollback");
  acceptance("free_token", "accept_all");
  method("exit_layer", "early-exit");
  method("exit_measure", "calm");
  method("exit_threshold", "calm");
  method("exit_decay", "calm");
  method("early_layer", "ppd");
  method("candidates", "ppd");
  method("execution", "ppd");
  return list;
}

}  // namespace draftsmith::infer
