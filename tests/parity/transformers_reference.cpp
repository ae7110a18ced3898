#include "tests/parity/transformers_reference.h"

#include <cstdlib>
#include <map>
#include <stdexcept>

#include "base/files.h"
#include "base/json.h"
#include "model/files/weight_files.h"
#include "tests/support/paths.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> integers(const at::Tensor& values) {
  const at::Tensor whole = values.to(at::kLong).contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

}  // namespace

bool TransformersReference::available() {
  return fs::exists(draftsmith::test::peers_python());
}

const TransformersReference& TransformersReference::of(const std::string& script) {
  static std::map<std::string, TransformersReference> made;
  return made.try_emplace(script, script).first->second;
}

TransformersReference::TransformersReference(std::string script) : script_(std::move(script)) {
  const std::string problems = run("make");
  if (!problems.empty()) {
    throw std::runtime_error("tools/" + script_ + " make failed:\n" + problems);
  }
}

std::string TransformersReference::run(const std::string& command, const std::string& rest) const {
  const fs::path log = root_ / (command + ".log");
  const std::string line = "OMP_NUM_THREADS=1 '" + draftsmith::test::peers_python().string() + "' '" +
                           (draftsmith::test::source_dir() / "tools").string() + "/" + script_ + "' " + command + " '" +
                           root().string() + "' " + rest + " >'" + log.string() + "' 2>&1";
  return std::system(line.c_str()) == 0 ? "" : read_file(log);
}

std::string TransformersReference::check_saved() const {
  return run("check");
}

Reference TransformersReference::batch(const std::string& name) const {
  const SafetensorsFile file(root_ / (name + ".reference.safetensors"));
  const auto read = [&](const std::string& tensor) { return file.stored(tensor).to(at::kFloat); };
  Reference reference;
  if (file.tensors().count("source") != 0) {
    reference.source = {read("source").to(at::kLong), integers(read("source_lengths"))};
  }
  reference.target = {read("target").to(at::kLong), integers(read("target_lengths"))};
  reference.labels = read("labels").to(at::kLong);
  reference.logits = read("logits");
  reference.loss = read("loss").item<double>();
  for (const auto& [tensor, entry] : file.tensors()) {
    if (tensor.rfind("grad/", 0) == 0) {
      reference.grads[tensor.substr(5)] = read(tensor);
    }
  }
  return reference;
}

GreedyReference TransformersReference::greedy(const std::string& name) const {
  const auto json = load_json(root_ / (name + ".greedy.json"));
  return {json.at("sources").get<Lists>(), json.at("outputs").get<Lists>()};
}

double relative_difference(const at::Tensor& found, const at::Tensor& wanted) {
  return difference(found, wanted) / largest(wanted);
}

}  // namespace draftsmith::model
