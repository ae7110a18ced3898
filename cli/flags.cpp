#include "cli/flags.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"

namespace draftsmith::cli {

std::string flag_name(const std::string& field_name) {
  std::string name = "--" + field_name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

namespace {

std::string help_of(const Field& field) {
  std::string help = field.help;
  if (!field.unit.empty()) help += " Unit: " + field.unit + ".";
  std::vector<std::string> choices = field.choices;
  std::erase(choices, "");
  if (!choices.empty()) help += " One of " + CLI::detail::join(choices, ", ") + ".";
  return help;
}

}  // namespace

FieldFlags::FieldFlags(CLI::App& app, FieldList fields, void* defaults, const std::set<std::string>& except)
    : fields_(std::move(fields)) {
  const CLI::callback_t keep_results = [](const CLI::results_t&) { return true; };
  for (const Field& field : fields_.all()) {
    const FlagKind kind = flag_kind(field, defaults);
    if (kind == FlagKind::kNone || except.contains(field.name)) continue;
    // Must be const: add_flag would store the flag's value into a mutable string.
    const std::string help = help_of(field);
    if (kind == FlagKind::kSwitch) {
      flags_.push_back({field, app.add_flag(flag_name(field.name), help)});
      continue;
    }
    CLI::Option* option = app.add_option(flag_name(field.name), keep_results, help);
    option->type_name(field.choices.empty() ? "VALUE" : "NAME");
    option->default_str(field_text(field, defaults));
    if (kind == FlagKind::kValues) option->expected(1, 1 << 20)->allow_extra_args(false);
    flags_.push_back({field, option});
  }
}

bool FieldFlags::given(const std::string& name) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& flag) { return flag.field.name == name && flag.option->count() > 0; });
}

void FieldFlags::parse_into(void* object, Problems& problems) const {
  const size_t problems_before = problems.list().size();
  for (const Flag& flag : flags_) {
    parse_field_text(flag.field, flag.option->results(), flag_name(flag.field.name), object, problems);
  }
  if (problems.list().size() == problems_before) validate_fields(fields_, object, "", problems);
}

void add_execution_flags(CLI::App& app, Execution& execution) {
  const Fields<Execution> fields = Execution::fields();
  const auto help = [&](const std::string& name) {
    const auto named = [&](const Field& field) { return field.name == name; };
    return std::find_if(fields.all().begin(), fields.all().end(), named)->help;
  };
  app.add_option("--device", execution.device, help("device"))->capture_default_str();
  app.add_option("--threads", execution.threads, help("threads"))->capture_default_str();
  app.add_option("--matmul-precision", execution.matmul_precision, help("matmul_precision"))->capture_default_str();
  app.add_flag("--quiet,-q", execution.quiet, help("quiet"));
}

void add_set_flag(CLI::App& app, std::vector<std::string>& set) {
  app.add_option("--set", set,
                 "Override one key of the file, for example --set target.training.length='500 steps'; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

c10::Device begin_execution(const Execution& execution) {
  Problems problems;
  validate_options(execution, "", problems);
  problems.throw_if_any();
  set_quiet(execution.quiet);
  const c10::Device device = choose_device(execution.device);
  set_threads(execution.threads);
  set_matmul_precision(execution.matmul_precision);
  return device;
}

}  // namespace draftsmith::cli
