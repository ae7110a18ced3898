#include "distributed/launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith {

namespace {

constexpr int64_t kDefaultPort = 29500;
constexpr int64_t kMostPort = 65535;
constexpr int64_t kMostProcesses = 1 << 16;

// Reads variables and collects what is wrong with them.
class Variables {
 public:
  Variables(const Environment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  bool has(const std::string& name) const { return environment_(name).has_value(); }

  int64_t number(const std::string& name, int64_t least, int64_t most) {
    const auto text = environment_(name);
    if (!text) {
      missing(name, "a number");
      return least;
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error == std::errc() && end == text->data() + text->size() && value >= least && value <= most) return value;
    problems_.add({.where = name,
                   .what = "the variable that " + launcher_ + " sets is not usable",
                   .expected = fmt::format("a number from {} to {}", least, most),
                   .found = text->empty() ? "nothing" : *text});
    return least;
  }

  int64_t number_or(const std::string& name, int64_t least, int64_t most, int64_t otherwise) {
    return has(name) ? number(name, least, most) : otherwise;
  }

  std::string text(const std::string& name, const std::string& what) {
    if (const auto value = environment_(name); value && !value->empty()) return *value;
    missing(name, what);
    return "";
  }

  std::string text_or(const std::string& name, const std::string& otherwise) const {
    return environment_(name).value_or(otherwise);
  }

  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  void missing(const std::string& name, const std::string& expected) {
    problems_.add({.where = name,
                   .what = "a variable that tells a process its place in the job is not set",
                   .expected = expected,
                   .found = "other variables of " + launcher_,
                   .hint = "start with torchrun, srun or mpirun; or unset the others to run one process"});
  }

  const Environment& environment_;
  std::string launcher_;
  Problems problems_;
};

Launch from_torchrun(Variables& variables, bool elastic) {
  Launch launch{.launcher = elastic ? "torchrun" : "RANK"};
  launch.size = variables.number("WORLD_SIZE", 1, kMostProcesses);
  launch.rank = variables.number("RANK", 0, launch.size - 1);
  // Whoever sets the variables by hand mostly starts all processes on one machine.
  launch.local_size = variables.number_or("LOCAL_WORLD_SIZE", 1, launch.size, elastic ? 1 : launch.size);
  launch.local_rank = variables.number_or("LOCAL_RANK", 0, launch.local_size - 1, launch.rank % launch.local_size);
  if (launch.size == 1) return launch;
  launch.host = variables.text("MASTER_ADDR", "the host of process 0");
  launch.port = variables.number("MASTER_PORT", 1, kMostPort);
  launch.store_exists = variables.text_or("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  launch.attempt = fmt::format("{}/{}", variables.text_or("TORCHELASTIC_RUN_ID", ""),
                               variables.text_or("TORCHELASTIC_RESTART_COUNT", "0"));
  return launch;
}

// Returns the largest number of Slurm's list of tasks on each node: "2(x3),1" gives 2. A number in parentheses says on
// how many nodes.
int64_t most_tasks(const std::string& list) {
  int64_t most = 1;
  for (size_t begin = 0; begin < list.size(); begin = list.find(',', begin) + 1) {
    int64_t tasks = 0;
    std::from_chars(list.data() + begin, list.data() + list.size(), tasks);
    most = std::max(most, tasks);
    if (list.find(',', begin) == std::string::npos) break;
  }
  return most;
}

Launch from_slurm(Variables& variables) {
  Launch launch{.launcher = "Slurm"};
  launch.size = variables.number("SLURM_STEP_NUM_TASKS", 1, kMostProcesses);
  launch.rank = variables.number("SLURM_PROCID", 0, launch.size - 1);
  launch.local_rank = variables.number("SLURM_LOCALID", 0, launch.size - 1);
  launch.local_size = most_tasks(variables.text_or("SLURM_STEP_TASKS_PER_NODE", "1"));
  if (launch.size == 1) return launch;
  if (variables.has("MASTER_ADDR")) {
    launch.host = variables.text("MASTER_ADDR", "a host");
  } else {
    launch.host = first_host(variables.text("SLURM_STEP_NODELIST", "the hosts of the step"));
  }
  const int64_t job = variables.number("SLURM_JOB_ID", 0, int64_t{1} << 40);
  launch.port = variables.number_or("MASTER_PORT", 1, kMostPort, 20000 + job % 20000);
  launch.attempt = fmt::format("{}.{}.{}", job, variables.text_or("SLURM_STEP_ID", "0"),
                               variables.text_or("SLURM_RESTART_COUNT", "0"));
  return launch;
}

Launch from_open_mpi(Variables& variables) {
  Launch launch{.launcher = "Open MPI"};
  launch.size = variables.number("OMPI_COMM_WORLD_SIZE", 1, kMostProcesses);
  launch.rank = variables.number("OMPI_COMM_WORLD_RANK", 0, launch.size - 1);
  launch.local_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, launch.size);
  launch.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, launch.local_size - 1);
  if (launch.size == 1) return launch;
  const bool one_machine = launch.local_size == launch.size && !variables.has("MASTER_ADDR");
  launch.host = one_machine ? "127.0.0.1" : variables.text("MASTER_ADDR", "the host of process 0");
  launch.port = variables.number_or("MASTER_PORT", 1, kMostPort, kDefaultPort);
  return launch;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::string first_host(const std::string& node_list) {
  const size_t end = node_list.find_first_of("[,");
  if (end == std::string::npos || node_list[end] == ',') return node_list.substr(0, end);
  const size_t number_end = node_list.find_first_of("-,]", end + 1);
  const size_t close = node_list.find(']', end);
  if (close == std::string::npos) return node_list;
  const size_t rest = node_list.find(',', close);
  const size_t suffix = rest == std::string::npos ? std::string::npos : rest - close - 1;
  return node_list.substr(0, end) + node_list.substr(end + 1, number_end - end - 1) +
         node_list.substr(close + 1, suffix);
}

std::optional<Launch> find_launch(const Environment& environment) {
  const auto has = [&](const char* name) { return environment(name).has_value(); };
  std::optional<Launch> launch;
  const auto read = [&](const std::string& launcher, auto from) {
    Variables variables(environment, launcher);
    launch = from(variables);
    variables.throw_if_any();
  };
  if (has("RANK") || has("WORLD_SIZE")) {
    const bool elastic = has("TORCHELASTIC_RUN_ID");
    read(elastic ? "torchrun" : "RANK and WORLD_SIZE", [&](Variables& v) { return from_torchrun(v, elastic); });
  } else if (has("SLURM_STEP_NUM_TASKS")) {
    read("Slurm", from_slurm);
  } else if (has("OMPI_COMM_WORLD_RANK")) {
    read("Open MPI", from_open_mpi);
  }
  if (launch && launch->size == 1) return std::nullopt;
  return launch;
}

}  // namespace draftsmith
