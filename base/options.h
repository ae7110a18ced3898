// Options structs that list their fields once: parsing from TOML with every error at once, the resolved dump, the hash
// that names a stage's directory, and `draftsmith help options` all come from that one list.
//
//   struct WindowOptions {
//     int64_t window = 5;
//     static Fields<WindowOptions> fields();
//   };
//   Fields<WindowOptions> WindowOptions::fields() {
//     return Fields<WindowOptions>("window options")
//         .add("window", &WindowOptions::window, Range{1, 64}, Unit{"tokens"}, "Draft window G.");
//   }
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/options_field.h"
#include "base/toml_names.h"

namespace draftsmith {

// The fields of options struct T, listed once in T::fields().
template <class T>
class Fields : public FieldList {
 public:
  // `title` heads the struct's section of `draftsmith help options`.
  explicit Fields(std::string title) : FieldList(std::move(title)) {}

  // Adds the field `name` (snake_case); `rest` is its constraints and its help text, in any order.
  template <class M, class B, class... Rest>
  Fields& add(std::string name, M B::*member, Rest&&... rest) {
    static_assert(std::is_base_of_v<B, T>, "the member belongs to T or a base of it");
    Field field;
    field.name = std::move(name);
    (options_detail::apply(field, std::forward<Rest>(rest)), ...);
    field.pointer = [member](void* object) { return options_detail::pointer_to(static_cast<T*>(object)->*member); };
    fields_.push_back(std::move(field));
    return *this;
  }

  // Adds a field that is described already.
  Fields& add(Field field) {
    fields_.push_back(std::move(field));
    return *this;
  }

  // Adds every field and check of the base struct B, so that structs can share options by inheritance.
  template <class B>
  Fields& inherit() {
    static_assert(std::is_base_of_v<B, T>);
    const Fields<B> base = B::fields();
    for (Field field : base.all()) {
      field.pointer = [inner = field.pointer](void* object) { return inner(static_cast<B*>(static_cast<T*>(object))); };
      fields_.push_back(std::move(field));
    }
    for (const Check& inner : base.checks()) {
      checks_.push_back([inner](const void* object, const std::string& where, Problems& problems) {
        inner(static_cast<const B*>(static_cast<const T*>(object)), where, problems);
      });
    }
    return *this;
  }

  // Adds a check across fields, run after each field was parsed without a problem.
  Fields& check(std::function<void(const T&, const std::string& where, Problems&)> validator) {
    checks_.push_back(
        [validator = std::move(validator)](const void* object, const std::string& where, Problems& problems) {
          validator(*static_cast<const T*>(object), where, problems);
        });
    return *this;
  }
};

// Type-erased forms of the functions below; `object` is a struct described by `fields`.
void parse_fields(const FieldList& fields, const toml::table& table, const std::string& path, void* object,
                  Problems& problems);
void validate_fields(const FieldList& fields, const void* object, const std::string& where, Problems& problems);
std::string dump_fields(const FieldList& fields, const void* object, const std::string& path);
nlohmann::ordered_json fields_to_json(const FieldList& fields, const void* object, bool results_only);
// Returns the value of one field; infinite numbers become strings, absent optionals null.
nlohmann::ordered_json field_json(const Field& field, const void* object);
std::string describe_fields(const FieldList& fields, const void* defaults);
// Values that the user types behind a field's flag.
enum class FlagKind { kNone, kSwitch, kValue, kValues };  // kNone: a nested table; kSwitch: true or false
FlagKind flag_kind(const Field& field, void* object);

// Returns the default value as text for help; empty: there is none.
std::string field_text(const Field& field, void* object);

// Parses the values of a command line flag into one field, all of them for a list, else the last. Strings are taken as
// they are, anything else is read as TOML. `where` names the flag.
void parse_field_text(const Field& field, const std::vector<std::string>& texts, const std::string& where, void* object,
                      Problems& problems);

// Reads T from a TOML table. `path` is the table's own dotted path ("stage.train"), shown before each key; files and
// lines come from the table's nodes. Adds a problem for each unknown key (with the nearest known one), wrong type,
// value out of range and missing required key; fields with problems keep their defaults.
template <class T>
T parse_options(const toml::table& table, const std::string& path, Problems& problems) {
  T options;
  parse_fields(T::fields(), table, path, &options, problems);
  return options;
}

// Checks ranges, choices and cross-field checks of a struct that was not parsed from TOML. `where` prefixes the names.
template <class T>
void validate_options(const T& options, const std::string& where, Problems& problems) {
  validate_fields(T::fields(), &options, where, problems);
}

// Returns TOML text with every field (absent optionals are left out), which parses back to equal values. `path` becomes
// the table's header: "" for the root, "stage.train" for [stage.train].
template <class T>
std::string dump_options(const T& options, const std::string& path = "") {
  return dump_fields(T::fields(), &options, path);
}

// Returns every field as JSON, in the order of the list. `results_only` leaves out NoResult fields. (Json is a
// parameter only so that this header does without nlohmann's.)
template <class T, class Json = nlohmann::ordered_json>
Json options_to_json(const T& options, bool results_only = false) {
  return fields_to_json(T::fields(), &options, results_only);
}

std::vector<std::filesystem::path> paths_of_fields(const FieldList& fields, const void* object);

// Returns every path the struct holds, nested structs included: the files and folders that a stage reads.
template <class T>
std::vector<std::filesystem::path> option_paths(const T& options) {
  return paths_of_fields(T::fields(), &options);
}

nlohmann::json identity_of_fields(const FieldList& fields, const void* object, const void* defaults);
std::string hash_of_identity(const nlohmann::json& identity);

// Returns what identifies these options: the fields that change results and differ from their defaults, and required
// ones. Its keys are sorted, so the order of the list does not matter. A field that is added later with a default
// leaves the identity as it is, so finished work stays finished. If you change an existing default, increment
// StageKind::version.
template <class T, class Json = nlohmann::json>
Json options_identity(const T& options) {
  const T defaults{};
  return identity_of_fields(T::fields(), &options, &defaults);
}

// Returns the SHA-256 of options_identity() in 64 hex digits.
template <class T>
std::string options_hash(const T& options) {
  return hash_of_identity(options_identity(options));
}

// Returns name, type, default, range, unit and meaning of every field, nested structs included; at most 100 columns
// wide.
template <class T>
std::string describe_options() {
  const T defaults{};
  return describe_fields(T::fields(), &defaults);
}

}  // namespace draftsmith
