// Conversion of structs to JSON and back, from one list of keys. Each struct has a function visit(io, value), which
// both JsonWriter and JsonReader call:
//
//   template <class Io>
//   void visit(Io& io, Of<Io, Point>& point) {
//     io("x", point.x);
//     io("name", point.name);  // an absent std::optional is left out
//   }
#pragma once

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "metrics/resampling.h"

namespace draftsmith::evaluate {

// Type of the struct that visit() gets: const for writing.
template <class Io, class T>
using Of = std::conditional_t<Io::kWrites, const T, T>;

template <class T>
constexpr bool kOptional = false;
template <class T>
constexpr bool kOptional<std::optional<T>> = true;
template <class T>
constexpr bool kList = false;
template <class T>
constexpr bool kList<std::vector<T>> = true;
template <class T>
constexpr bool kNamed = false;
template <class T>
constexpr bool kNamed<std::vector<std::pair<std::string, T>>> = true;
template <class Io, class T>
concept Visited = requires(Io& io, Of<Io, T>& value) {
  visit(io, value);
};

// Value that no writer writes, although its type is right.
class InvalidValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Writer of structs into `json`. Numbers that are not finite become null.
class JsonWriter {
 public:
  static constexpr bool kWrites = true;

  // Writes the value of a key, unless it is absent.
  template <class T>
  void operator()(const std::string& key, const T& value) {
    if constexpr (kOptional<T>) {
      if (value) json[key] = written(*value);
    } else {
      json[key] = written(value);
    }
  }
  // Writes a value that follows from others. Readers ignore it.
  template <class T>
  void derived(const std::string& key, const T& value) {
    (*this)(key, value);
  }
  // Writes a number and its interval.
  void estimate(const std::string& key, double value, const metrics::Interval& interval) {
    (*this)(key, value);
    (*this)(key + "_ci95", interval);
  }

  nlohmann::ordered_json json = nlohmann::ordered_json::object();

 private:
  template <class T>
  static nlohmann::ordered_json written(const T& value) {
    if constexpr (std::is_same_v<T, nlohmann::ordered_json>) {
      return value;  // comes first, since JSON converts to the type of every visit()
    } else if constexpr (std::is_same_v<T, double>) {
      return finite_or_null(value);
    } else if constexpr (std::is_same_v<T, metrics::Interval>) {
      return {finite_or_null(value.low), finite_or_null(value.high)};
    } else if constexpr (kNamed<T>) {
      nlohmann::ordered_json object = nlohmann::ordered_json::object();
      for (const auto& [name, one] : value) object[name] = written(one);
      return object;
    } else if constexpr (kList<T>) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const auto& one : value) list.push_back(written(one));
      return list;
    } else if constexpr (Visited<JsonWriter, T>) {
      JsonWriter inner;
      visit(inner, value);
      return std::move(inner.json);
    } else {
      return value;
    }
  }
};

// Reader of an object's keys. Missing and null numbers are NaN, other missing values keep their defaults.
// Errors: nlohmann::json::exception for wrong types.
class JsonReader {
 public:
  static constexpr bool kWrites = false;
  explicit JsonReader(const nlohmann::ordered_json& object) : json(object) {}

  template <class T>
  void operator()(const std::string& key, T& value) {
    const auto found = json.find(key);
    if constexpr (kOptional<T>) {
      if (found != json.end()) read(*found, value.emplace());
    } else if constexpr (std::is_same_v<T, double>) {
      value = kUnknown;
      if (found != json.end()) read(*found, value);
    } else if constexpr (Visited<JsonReader, T>) {
      static const nlohmann::ordered_json kEmpty = nlohmann::ordered_json::object();
      read(found == json.end() ? kEmpty : *found, value);
    } else if (found != json.end()) {
      read(*found, value);
    }
  }
  template <class T>
  void derived(const std::string& /*key*/, const T& /*value*/) {}
  void estimate(const std::string& key, double& value, metrics::Interval& interval) {
    (*this)(key, value);
    interval = {kUnknown, kUnknown};
    if (json.contains(key + "_ci95")) read(json.at(key + "_ci95"), interval);
  }

  const nlohmann::ordered_json& json;

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  template <class T>
  static void read(const nlohmann::ordered_json& from, T& value) {
    if constexpr (std::is_same_v<T, double>) {
      value = from.is_null() ? kUnknown : from.get<double>();
    } else if constexpr (std::is_same_v<T, metrics::Interval>) {
      read(from.at(0), value.low);
      read(from.at(1), value.high);
    } else if constexpr (kNamed<T>) {
      for (const auto& [name, one] : from.items())
        read(one, value.emplace_back(name, typename T::value_type::second_type()).second);
    } else if constexpr (kList<T>) {
      for (const auto& one : from) read(one, value.emplace_back());
    } else if constexpr (std::is_same_v<T, nlohmann::ordered_json>) {
      value = from;
    } else if constexpr (Visited<JsonReader, T>) {
      JsonReader inner(from);
      visit(inner, value);
    } else {
      from.get_to(value);
    }
  }
};

}  // namespace draftsmith::evaluate
