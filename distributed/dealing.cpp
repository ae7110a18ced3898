#include "distributed/dealing.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/signals.h"

namespace draftsmith {

std::vector<nlohmann::json> gather_parts(World& world, const std::string& what,
                                         const std::function<nlohmann::json()>& part) {
  if (world.is_alone()) return {part()};
  nlohmann::json own;
  try {
    own["part"] = part();
  } catch (const Interrupted& stop) {
    own = {{"stopped", stop.problems().front().hint}};
  }
  std::vector<nlohmann::json> parts;
  for (const std::string& text : world.gather(what, own.dump())) {
    const nlohmann::json one = nlohmann::json::parse(text);
    if (one.contains("stopped")) {
      request_stop(SIGTERM);
      throw_if_stop_requested(one.at("stopped").get<std::string>());
    }
    parts.push_back(one.at("part"));
  }
  return parts;
}

void run_on_leader(World& world, const std::string& what, const std::function<void()>& work) {
  gather_parts(world, what, [&]() -> nlohmann::json {
    if (world.leads()) work();
    return true;
  });
}

std::vector<int64_t> deal_out(World& world, const std::string& what, int64_t count,
                              const std::function<void(int64_t)>& work) {
  const std::string counter = world.new_counter(what);
  std::vector<int64_t> taken;
  gather_parts(world, what, [&]() -> nlohmann::json {
    for (int64_t number = world.ticket(counter); number < count; number = world.ticket(counter)) {
      taken.push_back(number);
      work(number);
    }
    return true;
  });
  return taken;
}

SharedProgress::SharedProgress(World& world, const std::string& what, std::vector<int64_t> sizes, Progress& progress)
    : world_(world), counter_(world.new_counter("finished " + what)), sizes_(std::move(sizes)), progress_(progress) {}

void SharedProgress::finished_one() {
  const auto finished = static_cast<size_t>(world_.ticket(counter_)) + 1;
  for (; shown_ < std::min(finished, sizes_.size()); ++shown_) progress_.advance(sizes_[shown_]);
}

void SharedProgress::finished_all() {
  for (; shown_ < sizes_.size(); ++shown_) progress_.advance(sizes_[shown_]);
}

std::string exact_text(double number) {
  return fmt::format("{}", number);
}

double exact_number(const nlohmann::json& text) {
  return std::strtod(text.get<std::string>().c_str(), nullptr);  // std::stod() refuses numbers near 0
}

}  // namespace draftsmith
