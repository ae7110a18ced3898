// From TOML tables to options structs, and the checks of values.
#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/options.h"
#include "base/toml.h"
#include "base/util.h"

namespace draftsmith {
namespace {

using namespace options_detail;

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// "file:line: a.b", whichever of the two there is.
std::string where_is(const toml::node& node, const std::string& path) {
  const std::string location = location_of(node);
  if (location.empty()) return path;
  return path.empty() ? location : location + ": " + path;
}

// Returns the node that an option's path leads to, or the last one on the way whose place is known.
const toml::node& node_at(const toml::table& table, std::string_view path) {
  if (path.starts_with('.')) path.remove_prefix(1);
  while (!path.empty()) {
    const toml::node* node = table.at_path(path).node();
    if (node && !location_of(*node).empty()) return *node;
    const size_t end = path.find_last_of(".[");
    path = path.substr(0, end == std::string_view::npos ? 0 : end);
  }
  return table;
}

// Makes a table's cross-field check. Problems get the lines of the options that they name.
void check_table(const FieldList::Check& check, const void* object, const toml::table& table, const std::string& path,
                 Problems& problems) {
  Problems found;
  check(object, path, found);
  for (Problem problem : found.list()) {
    const bool below = problem.where.starts_with(path);
    const std::string_view rest = below ? std::string_view(problem.where).substr(path.size()) : std::string_view();
    problem.where = where_is(node_at(table, rest), problem.where);
    problems.add(std::move(problem));
  }
}

std::string shown(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_table<decltype(value)>) {
      text << "a table";
    } else if constexpr (toml::is_array<decltype(value)>) {
      text << "a list of " << value.size();
    } else {
      text << toml::toml_formatter(value);
    }
  });
  return text.str();
}

template <class E>
std::string type_text() {
  if constexpr (std::is_same_v<E, bool>) return "true or false";
  if constexpr (std::is_same_v<E, int64_t>) return "an integer";
  if constexpr (std::is_same_v<E, uint64_t>) return "an integer of at least 0";
  if constexpr (std::is_same_v<E, double>) return "a number";
  if constexpr (std::is_same_v<E, std::string>) return "a string";
  if constexpr (std::is_same_v<E, std::filesystem::path>) return "a string (a path)";
}

template <class E>
std::string expectation(const Field& field) {
  if (!field.choices.empty()) return choices_text(field.choices);
  const std::string bounds = bounds_text(field);
  if (bounds.empty()) return type_text<E>();
  return (std::is_same_v<E, double> ? "a number, " : "an integer, ") + bounds;
}

// The node as a value of type E, or nothing for a wrong type.
template <class E>
std::optional<E> value_of(const toml::node& node) {
  if constexpr (std::is_same_v<E, double>) {
    if (node.is_integer()) return static_cast<double>(**node.as_integer());
    return node.is_floating_point() ? std::optional(**node.as_floating_point()) : std::nullopt;
  } else if constexpr (std::is_same_v<E, bool>) {
    return node.is_boolean() ? std::optional(**node.as_boolean()) : std::nullopt;
  } else if constexpr (std::is_same_v<E, int64_t>) {
    return node.is_integer() ? std::optional<int64_t>(**node.as_integer()) : std::nullopt;
  } else if constexpr (std::is_same_v<E, uint64_t>) {
    if (!node.is_integer() || **node.as_integer() < 0) return std::nullopt;
    return static_cast<uint64_t>(**node.as_integer());
  } else {
    return node.is_string() ? std::optional<E>(**node.as_string()) : std::nullopt;
  }
}

template <class E>
bool acceptable(const Field& field, const E& value) {
  if constexpr (std::is_same_v<E, std::string>) {
    return field.choices.empty() || std::find(field.choices.begin(), field.choices.end(), value) != field.choices.end();
  } else if constexpr (std::is_arithmetic_v<E> && !std::is_same_v<E, bool>) {
    return in_bounds(field, static_cast<double>(value));
  } else {
    return true;
  }
}

template <class E>
std::string choice_hint(const Field& field, const E& value) {
  if constexpr (std::is_same_v<E, std::string>) {
    const std::string near = nearest(value, field.choices);
    if (!near.empty()) return "did you mean '" + near + "'?";
  }
  return "";
}

// Reads one element; adds a problem and gives nothing when it cannot be used.
template <class E>
std::optional<E> parse_element(const Field& field, const toml::node& node, const std::string& path,
                               Problems& problems) {
  const std::optional<E> value = value_of<E>(node);
  if (value && acceptable(field, *value)) return value;
  const char* what = !value ? "the value has the wrong type" : "the value is not allowed";
  problems.add({where_is(node, path), what, expectation<E>(field), shown(node),
                value ? choice_hint(field, *value) : std::string()});
  return std::nullopt;
}

template <class M>
void parse_value(const Field& field, const toml::node& node, const std::string& path, M& member, Problems& problems) {
  using E = typename ElementOf<M>::type;
  if constexpr (kIsVector<M>) {
    const toml::array* array = node.as_array();
    if (!array && field.accepts_one) {
      if (auto value = parse_element<E>(field, node, path, problems)) member = {std::move(*value)};
      return;
    }
    if (!array) {
      problems.add({where_is(node, path), "the value has the wrong type",
                    "a list, each element " + expectation<E>(field), shown(node), "write it in brackets: [...]"});
      return;
    }
    if (array->empty() && field.accepts_one) {
      problems.add({where_is(node, path), "the list is empty", "one value or more, each " + expectation<E>(field), "[]",
                    "to take the default, leave the key out"});
      return;
    }
    M values;
    for (size_t i = 0; i < array->size(); ++i) {
      auto value = parse_element<E>(field, *array->get(i), fmt::format("{}[{}]", path, i), problems);
      if (value) values.push_back(std::move(*value));
    }
    if (values.size() == array->size()) member = std::move(values);
  } else {
    auto value = parse_element<E>(field, node, path, problems);
    if (value) member = std::move(*value);
  }
}

void parse_nested(const NestedPointer& nested, const toml::node& node, const std::string& path, Problems& problems) {
  const FieldList fields = nested.type->fields();
  if (nested.type->kind != NestedType::Kind::kVector) {
    const toml::table* table = node.as_table();
    if (!table) {
      problems.add({where_is(node, path), "the value has the wrong type", "a table [" + path + "]", shown(node), ""});
      return;
    }
    nested.type->resize(nested.member, 1);
    parse_fields(fields, *table, path, nested.type->elements(nested.member).front(), problems);
    return;
  }
  const toml::array* array = node.as_array();
  if (!array || !std::all_of(array->begin(), array->end(), [](const toml::node& e) { return e.is_table(); })) {
    problems.add(
        {where_is(node, path), "the value has the wrong type", "tables headed [[" + path + "]]", shown(node), ""});
    return;
  }
  nested.type->resize(nested.member, array->size());
  const std::vector<void*> elements = nested.type->elements(nested.member);
  for (size_t i = 0; i < elements.size(); ++i) {
    const std::string element_path = fmt::format("{}[{}]", path, i);
    parse_fields(fields, *array->get(i)->as_table(), element_path, elements[i], problems);
  }
}

void parse_field(const Field& field, const toml::node& node, const std::string& path, void* object,
                 Problems& problems) {
  std::visit(Overload{[&](NestedPointer nested) { parse_nested(nested, node, path, problems); },
                      [&](auto* member) { parse_value(field, node, path, *member, problems); }},
             field.pointer(object));
}

void report_unknown_keys(const FieldList& fields, const toml::table& table, const std::string& path,
                         Problems& problems) {
  const std::vector<std::string> names = from_each(fields.all(), &Field::name);
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = nearest(name, names);
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    problems.add({where_is(value, joined(path, name)), "unknown key '" + name + "'", "", "",
                  near.empty() ? "known here: " + list : "did you mean '" + near + "'?"});
  }
}

// The checks of one member's value that parsing would have made.
template <class M>
void validate_member(const Field& field, const M& member, const std::string& where, Problems& problems) {
  using E = typename ElementOf<M>::type;
  const auto check = [&](const E& value, const std::string& name) {
    if (acceptable(field, value)) return;
    std::string found;
    if constexpr (std::is_same_v<E, double>) {
      found = number_text(value);
    } else if constexpr (std::is_same_v<E, std::filesystem::path>) {
      found = value.string();
    } else {
      found = fmt::format("{}", value);
    }
    problems.add({name, "the value is not allowed", expectation<E>(field), found, choice_hint(field, value)});
  };
  if constexpr (kIsVector<M>) {
    for (size_t i = 0; i < member.size(); ++i) check(member[i], fmt::format("{}[{}]", where, i));
  } else if constexpr (kIsOptional<M>) {
    if (member) check(*member, where);
  } else {
    check(member, where);
  }
}

// Refuses the table of a part that the struct's field `name` does not choose.
void require_chosen(const FieldList& fields, const Field& part, const toml::table& table, const std::string& path,
                    void* object, Problems& problems) {
  const auto name = std::ranges::find(fields.all(), "name", &Field::name);
  const std::string& chosen = *std::get<std::string*>(name->pointer(object));
  if (chosen == part.name) return;
  problems.add({where_is(*table.get(part.name), joined(path, part.name)), "options of a part that is not chosen",
                fmt::format("name = \"{}\" beside them", part.name), fmt::format("name = \"{}\"", chosen),
                "set the name, or leave the options out, also of the recipe's defaults"});
}

}  // namespace

void parse_fields(const FieldList& fields, const toml::table& table, const std::string& path, void* object,
                  Problems& problems) {
  const size_t problems_before = problems.list().size();
  for (const Field& field : fields.all()) {
    const toml::node* node = table.get(field.name);
    if (node) {
      parse_field(field, *node, joined(path, field.name), object, problems);
    } else if (field.required) {
      problems.add({where_is(table, path), "the key '" + field.name + "' is missing", field.help, "", ""});
    }
  }
  report_unknown_keys(fields, table, path, problems);
  // Cross-field checks would only repeat what is wrong with single fields.
  if (problems.list().size() != problems_before) return;
  for (const Field& part : fields.all()) {
    if (part.chosen_by_name && table.contains(part.name)) require_chosen(fields, part, table, path, object, problems);
  }
  for (const auto& check : fields.checks()) check_table(check, object, table, path, problems);
}

FlagKind flag_kind(const Field& field, void* object) {
  return std::visit(Overload{[](NestedPointer) { return FlagKind::kNone; },
                             [](auto* member) {
                               using M = std::remove_pointer_t<decltype(member)>;
                               if (kIsVector<M>) return FlagKind::kValues;
                               return std::is_same_v<M, bool> ? FlagKind::kSwitch : FlagKind::kValue;
                             }},
                    field.pointer(object));
}

void parse_field_text(const Field& field, const std::vector<std::string>& texts, const std::string& where, void* object,
                      Problems& problems) {
  if (texts.empty()) return;
  const bool is_text =
      std::visit(Overload{[](NestedPointer) { return false; },
                          [](auto* member) {
                            using E = typename ElementOf<std::remove_pointer_t<decltype(member)>>::type;
                            return std::is_same_v<E, std::string> || std::is_same_v<E, std::filesystem::path>;
                          }},
                 field.pointer(object));
  // Nodes made here have no source, so that problems are located by `where` alone.
  toml::array values;
  for (const std::string& text : texts) {
    if (is_text) {
      values.push_back(text);
      continue;
    }
    try {
      toml_value(text, "").get("value")->visit([&](const auto& value) { values.push_back(value); });
    } catch (const toml::parse_error&) {
      problems.add({where, "the value cannot be read", "", text, ""});
    }
  }
  if (values.size() != texts.size()) return;
  if (flag_kind(field, object) == FlagKind::kValues) {
    parse_field(field, values, where, object, problems);
  } else {
    parse_field(field, *values.get(values.size() - 1), where, object, problems);
  }
}

void validate_fields(const FieldList& fields, const void* object, const std::string& where, Problems& problems) {
  const size_t problems_before = problems.list().size();
  for (const Field& field : fields.all()) {
    const std::string name = joined(where, field.name);
    // Fields are only read here; one accessor serves reading and writing.
    std::visit(Overload{[&](NestedPointer nested) {
                          const FieldList inner = nested.type->fields();
                          const std::vector<void*> elements = nested.type->elements(nested.member);
                          for (size_t i = 0; i < elements.size(); ++i) {
                            const bool many = nested.type->kind == NestedType::Kind::kVector;
                            const std::string inner_name = many ? fmt::format("{}[{}]", name, i) : name;
                            validate_fields(inner, elements[i], inner_name, problems);
                          }
                        },
                        [&](auto* member) { validate_member(field, *member, name, problems); }},
               field.pointer(const_cast<void*>(object)));
  }
  if (problems.list().size() != problems_before) return;
  for (const auto& check : fields.checks()) check(object, where, problems);
}

}  // namespace draftsmith
