#include "data/datasets/data_path.h"

#include <string_view>

#include <fmt/format.h>

#include "data/datasets/dataset.h"

namespace draftsmith::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDataPrefix = "$DATA/";

std::string hint_of_missing(const std::string& text) {
  if (!is_data_path(text)) return fs::path(text).is_absolute() ? "" : "paths are relative to the current directory";
  const fs::path folder = data_folder();
  const bool there = fs::is_directory(folder);
  return fmt::format("$DATA is {}{}; set {} to {}", folder.string(), there ? "" : " (not there)", kDataVariable,
                     there ? "another folder, or correct the path" : "the folder with your data");
}

}  // namespace

bool is_data_path(const std::string& text) {
  return text.starts_with(kDataPrefix);
}

std::string real_path(const std::string& text) {
  return is_data_path(text) ? data_folder().string() + text.substr(kDataPrefix.size() - 1) : text;
}

std::string portable_path(const fs::path& file) {
  const fs::path inside = file.lexically_relative(data_folder());
  const bool outside = inside.empty() || inside.begin()->string() == "..";
  return outside ? file.string() : std::string(kDataPrefix) + inside.string();
}

Problem missing_path(const std::string& text, const std::string& where) {
  return {.where = where,
          .what = "a file or model directory is missing",
          .expected = "a file or folder",
          .found = real_path(text) + " (not there)",
          .hint = hint_of_missing(text)};
}

}  // namespace draftsmith::data
