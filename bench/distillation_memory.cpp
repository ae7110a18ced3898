// Memory of the distillation loss at a large vocabulary: head, teacher's head, divergence and gradients of one batch.
//
//   bench_distillation_memory [--vocabulary 250112] [--rows 16] [--target 64] [--width 512] [--divergence forward_kl]
//   [--lambda 0.5] [--exits 1] [--threads 2]
//
// With --exits N the student makes N predictions with its one head, as in training for CALM.
//
// Prints JSON, sizes in MiB: what was there before (both heads' weights, hidden states), the peak while the loss and
// its gradients are computed, what of that are the gradients themselves, and what one fp32 copy of the logits [B,T,V]
// would be. Peaks are the kernel's (VmHWM), reset before the loss.
#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/timing.h"
#include "model/kinds/exits.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/models.h"
#include "train/memory.h"
#include "train/objectives/distill.h"

namespace {

using namespace draftsmith;

struct Settings {
  int64_t vocabulary = 250112;
  int64_t rows = 16;
  int64_t target = 64;
  int64_t width = 512;
  std::string divergence = "forward_kl";
  double lambda = 0.5;
  int64_t exits = 1;
  int64_t threads = 2;
};

// A line of /proc/self/status, in MiB.
double status_mib(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word != key + ":") continue;
    double kib = 0;
    file >> kib;
    return kib / 1024;
  }
  return 0;
}

double mib(const at::Tensor& tensor) {
  return static_cast<double>(tensor.nbytes()) / (1 << 20);
}

model::TransformerConfig head_alone(const Settings& settings) {
  model::TransformerConfig config = model::t5_config(
      {.vocabulary = settings.vocabulary, .width = settings.width, .heads = 1, .ff_width = 8, .decoder_layers = 1});
  config.tied_head = true;
  config.output_scale = 1 / std::sqrt(static_cast<double>(settings.width));
  return config;
}

train::Predictions predictions(const model::TransformerModel& model, const Settings& settings, bool gradients) {
  const int64_t positions = settings.rows * settings.target;
  return {.model = &model,
          .hidden = at::randn({positions, settings.width}).mul_(model.config().output_scale).requires_grad_(gradients),
          .labels = at::randint(settings.vocabulary, {positions}, at::TensorOptions(at::kLong))};
}

nlohmann::json measure(const Settings& settings) {
  model::TransformerModel student(head_alone(settings), 1), teacher(head_alone(settings), 2);
  student.requires_grad(true);
  train::TrainableOutput output{.predictions = {predictions(student, settings, true)}};
  while (std::ssize(output.predictions) < settings.exits) {
    output.predictions.push_back(predictions(student, settings, true));
    output.predictions.back().labels = output.predictions.front().labels;
  }
  train::HiddenTeacher distributions(predictions(teacher, settings, false));
  const train::DistillationTerms terms{.lambda = settings.lambda,
                                       .kind = {train::parse_divergence(settings.divergence)}};
  malloc_trim(0);  // what making the models left behind must not serve the loss unseen
  train::keep_freed_memory();
  std::ofstream("/proc/self/clear_refs") << 5;
  const double before = status_mib("VmRSS");
  const Stopwatch watch;
  train::distillation_loss(output, distributions, settings.vocabulary, terms).sum.backward();
  const double seconds = watch.seconds();
  const double peak = status_mib("VmHWM");
  const at::Tensor gradient = model::head_weight(student).grad();
  double gradients = mib(gradient);
  for (const auto& exit : output.predictions) gradients += mib(exit.hidden.grad());
  const double copy = static_cast<double>(settings.rows * settings.target * settings.vocabulary * 4) / (1 << 20);
  return {{"before_mib", before},           {"peak_mib", peak},
          {"gradients_mib", gradients},     {"loss_mib", peak - before - gradients},
          {"one_copy_of_logits_mib", copy}, {"seconds", seconds}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Memory of the distillation loss");
  app.add_option("--vocabulary", settings.vocabulary);
  app.add_option("--rows", settings.rows);
  app.add_option("--target", settings.target);
  app.add_option("--width", settings.width);
  app.add_option("--divergence", settings.divergence);
  app.add_option("--lambda", settings.lambda);
  app.add_option("--exits", settings.exits)->check(CLI::Range(1, 1000));
  app.add_option("--threads", settings.threads);
  CLI11_PARSE(app, argc, argv);
  set_threads(settings.threads);
  std::cout << measure(settings).dump() << "\n";
}
