// Options structs that list their fields once: parsing from TOML with every error at once, the resolved JSON, the hash
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

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

// The names of toml++'s types without their definitions: version 3.4 (Debian 13) has them under another name than 3.3.
#if __has_include(<toml++/impl/forward_declarations.hpp>)
#include <toml++/impl/forward_declarations.hpp>
#else
#include <toml++/impl/forward_declarations.h>
#endif

#include "base/error.h"

namespace draftsmith {

class FieldList;

// Attributes of a field: they stand behind its name and help in `add`, in any order.

// Inclusive bounds of a number, or of each element of a vector of numbers. Range{1} has no upper bound.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};
// Exclusive lower bound: Above{0} for a rate that must be positive.
struct Above {
  double min = 0;
};
// The only values a string (or each string of a vector) may have.
struct Choices {
  Choices(std::initializer_list<const char*> list) : values(list.begin(), list.end()) {}
  explicit Choices(std::vector<std::string> list) : values(std::move(list)) {}
  std::vector<std::string> values;
};
// Unit of a number, for the help text: "tokens", "steps", "seconds".
struct Unit {
  std::string name;
};
// The key must be given.
struct Required {};
// The field does not change results (device, threads, logging): it is in JSON, but left out of options_hash.
struct NoResult {};
// `inf` is a meaningful value (a rollback threshold that never triggers); otherwise infinite numbers are errors.
struct AllowInfinity {};
// How a grid over the struct (base/options_grid.h) takes the field: not at all, as one value, as one that must be
// given, or as a list of values that spans the grid.
enum class GridKey { kNone, kValue, kRequired, kList };
// Marks a field whose list spans the outer loop of a grid: fields with it come before all others.
struct OuterLoop {};
// Short name of the field in labels made of its value, "H" in "H0.5". Without it the field's own name is taken; an
// empty one keeps the field out of labels.
struct Label {
  std::string text;
};
// Labels name the field even where it has its default, provided that the parts in use read it.
struct AlwaysNamed {};
// Labels leave the field out where `test` holds of the struct, for values that mean the same as none.
template <class T>
struct UnnamedIf {
  bool (*test)(const T&);
};
// The field is read by some of the program's parts only: ReadBy{"window_rule", {"entropy"}}. What a part is, the code
// that owns the struct knows.
struct ReadBy {
  std::string part;
  std::vector<std::string> names;
};

// The table of a part: it may be given only where the struct's field `name` has the field's name, or nobody would read
// it.
struct ChosenByName {};

// A nested options struct, an optional of one or a vector of them, seen without its type as a sequence of structs.
struct NestedType {
  enum class Kind { kSingle, kOptional, kVector };
  Kind kind;
  FieldList (*fields)();
  std::vector<void*> (*elements)(void* member);
  void (*resize)(void* member, size_t count);  // kSingle: nothing to do; kOptional: makes it present
  const void* (*defaults)();                   // a struct as it is when nothing was given
};

struct NestedPointer {
  const NestedType* type;
  void* member;
};

// Address of one member of an options struct.
using FieldPointer = std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, std::filesystem::path*,
                                  std::vector<int64_t>*, std::vector<uint64_t>*, std::vector<double>*,
                                  std::vector<std::string>*, std::vector<std::filesystem::path>*, std::optional<bool>*,
                                  std::optional<int64_t>*, std::optional<uint64_t>*, std::optional<double>*,
                                  std::optional<std::string>*, std::optional<std::filesystem::path>*, NestedPointer>;

// One field without its struct's type.
struct Field {
  std::string name;
  std::string help;
  std::string unit;
  std::optional<Range> range;
  std::optional<double> above;
  std::vector<std::string> choices;
  bool required = false;
  bool affects_result = true;
  bool allow_infinity = false;
  bool accepts_one = false;  // of a list: a value without brackets is a list of one; an empty list is an error
  GridKey grid = GridKey::kNone;
  bool outer_loop = false;
  std::optional<std::string> label;
  bool always_named = false;
  std::function<bool(const void* object)> unnamed_if;  // empty: never
  std::optional<ReadBy> read_by;                       // absent: every part
  bool chosen_by_name = false;
  std::function<FieldPointer(void* object)> pointer;
};

// The fields of one options struct without its type.
class FieldList {
 public:
  explicit FieldList(std::string title) : title_(std::move(title)) {}
  const std::string& title() const { return title_; }
  const std::vector<Field>& all() const& { return fields_; }
  std::vector<Field> all() && { return std::move(fields_); }  // so that a loop over a temporary's fields is sound

  // A check across fields: (object, where the struct was given, problems).
  using Check = std::function<void(const void*, const std::string&, Problems&)>;
  const std::vector<Check>& checks() const { return checks_; }

 protected:
  std::string title_;
  std::vector<Field> fields_;
  std::vector<Check> checks_;
};

namespace options_detail {

template <class M>
struct ElementOf {
  using type = M;
};
template <class M>
struct ElementOf<std::vector<M>> {
  using type = M;
};
template <class M>
struct ElementOf<std::optional<M>> {
  using type = M;
};
template <class M>
constexpr bool kIsVector = false;
template <class M>
constexpr bool kIsVector<std::vector<M>> = true;
template <class M>
constexpr bool kIsOptional = false;
template <class M>
constexpr bool kIsOptional<std::optional<M>> = true;

// A struct with a list of fields, or an optional or a vector of such structs.
template <class M>
concept Nested = requires {
  ElementOf<M>::type::fields();
};

template <class M>
std::vector<void*> nested_elements(void* member) {
  M& of = *static_cast<M*>(member);
  std::vector<void*> elements;
  if constexpr (kIsVector<M>) {
    for (auto& element : of) elements.push_back(&element);
  } else if constexpr (kIsOptional<M>) {
    if (of) elements.push_back(&*of);
  } else {
    elements.push_back(&of);
  }
  return elements;
}

template <class M>
void resize_nested(void* member, size_t count) {
  M& of = *static_cast<M*>(member);
  if constexpr (kIsVector<M>) of = M(count);
  if constexpr (kIsOptional<M>) {
    if (!of) of.emplace();
  }
}

template <class S>
const void* defaults_of() {
  static const S kDefaults{};
  return &kDefaults;
}

template <Nested M>
constexpr NestedType kNestedType{kIsVector<M>     ? NestedType::Kind::kVector
                                 : kIsOptional<M> ? NestedType::Kind::kOptional
                                                  : NestedType::Kind::kSingle,
                                 +[]() -> FieldList { return ElementOf<M>::type::fields(); }, &nested_elements<M>,
                                 &resize_nested<M>, &defaults_of<typename ElementOf<M>::type>};

template <class M>
FieldPointer pointer_to(M& member) {
  if constexpr (Nested<M>) {
    return NestedPointer{&kNestedType<M>, &member};
  } else {
    return FieldPointer(&member);
  }
}

// Sets in a field what one of its attributes, or its help, says.
struct Apply {
  Field& field;

  void operator()(Range range) const { field.range = range; }
  void operator()(Above above) const { field.above = above.min; }
  void operator()(Choices choices) const { field.choices = std::move(choices.values); }
  void operator()(Unit unit) const { field.unit = std::move(unit.name); }
  void operator()(Required) const { field.required = true; }
  void operator()(NoResult) const { field.affects_result = false; }
  void operator()(AllowInfinity) const { field.allow_infinity = true; }
  void operator()(GridKey key) const { field.grid = key; }
  void operator()(OuterLoop) const { field.outer_loop = true; }
  void operator()(Label label) const { field.label = std::move(label.text); }
  void operator()(AlwaysNamed) const { field.always_named = true; }
  template <class T>
  void operator()(UnnamedIf<T> unnamed) const {
    field.unnamed_if = [test = unnamed.test](const void* object) { return test(*static_cast<const T*>(object)); };
  }
  void operator()(ReadBy readers) const { field.read_by = std::move(readers); }
  void operator()(ChosenByName) const { field.chosen_by_name = true; }
  void operator()(std::string help) const { field.help = std::move(help); }
};

// Returns a double as TOML writes it, the shortest text that reads back equal: "1.0", "1e-05", "inf".
std::string number_text(double value);

// Returns bounds as text: "1 to 64", "at least 1", "above 0"; empty: there are none.
std::string bounds_text(const Field& field);

// Returns "'a', 'b' or 'c'".
std::string choices_text(const std::vector<std::string>& choices);

// Returns whether a number satisfies the field's bounds and is finite (or infinite where allowed).
bool in_bounds(const Field& field, double value);

}  // namespace options_detail

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
    (options_detail::Apply{field}(std::forward<Rest>(rest)), ...);
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
nlohmann::ordered_json fields_to_json(const FieldList& fields, const void* object, bool results_only);
// Returns the value of one field; infinite numbers become strings, absent optionals null.
nlohmann::ordered_json field_json(const Field& field, const void* object);
std::string describe_fields(const FieldList& fields, const void* defaults);
// Values that the user types behind a field's flag.
enum class FlagKind { kNone, kSwitch, kValue, kValues };  // kNone: a nested table; kSwitch: true or false
FlagKind flag_kind(const Field& field, void* object);

// Returns the default value as text for help; empty: there is none.
std::string field_text(const Field& field, const void* object);

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
