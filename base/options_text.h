// How options show their values and what they expect; shared by the files that implement base/options.h.
#pragma once

#include <string>

#include "base/options.h"

namespace draftsmith::options_detail {

// Returns a double as TOML writes it, the shortest text that reads back equal: "1.0", "1e-05", "inf".
std::string number_text(double value);

// Returns bounds as text: "1 to 64", "at least 1", "above 0"; empty: there are none.
std::string bounds_text(const Field& field);

// Returns "'a', 'b' or 'c'".
std::string choices_text(const std::vector<std::string>& choices);

// Returns whether a number satisfies the field's bounds and is finite (or infinite where allowed).
bool in_bounds(const Field& field, double value);

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

}  // namespace draftsmith::options_detail
