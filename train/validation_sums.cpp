#include "train/validation_sums.h"

#include "base/json.h"
#include "train/objectives/cross_entropy_loss.h"

namespace draftsmith::train {

namespace {

// Probabilities held at a time when two models are compared.
constexpr int64_t kProbabilitiesAtOnce = int64_t{1} << 23;

// Sum over labels of sum over v of min(p, q). Ids that one of the models lacks count as 0.
double overlap_of(const Predictions& first, const Predictions& second) {
  const int64_t vocabulary = std::min(first.model->config().vocabulary, second.model->config().vocabulary);
  const int64_t block = std::max<int64_t>(1, kProbabilitiesAtOnce / vocabulary);
  const auto probabilities = [&](const Predictions& side, int64_t begin, int64_t count) {
    const at::Tensor all = logits(side, side.hidden.narrow(0, begin, count));  // [C,V]
    return all.to(at::kFloat).softmax(1).narrow(1, 0, vocabulary);
  };
  double sum = 0;
  for (int64_t begin = 0; begin < first.hidden.size(0); begin += block) {
    const int64_t count = std::min(block, first.hidden.size(0) - begin);
    const at::Tensor p = probabilities(first, begin, count);
    const at::Tensor q = probabilities(second, begin, count);
    sum += at::minimum(p, q).sum().to(at::kDouble).item<double>();
  }
  return sum;
}

}  // namespace

void PredictionSums::add(const Predictions& own, const std::optional<Predictions>& teacher) {
  const HeadLabels known = labels_in_head(*own.model, own.labels);
  const Prediction prediction = predict(known.of(own.hidden), head_of(own), known.rows);
  layer = own.layer;
  weight = own.weight;
  loss += prediction.loss.sum.item<double>();
  correct += prediction.arg_maxs.eq(known.rows).sum().item<int64_t>();
  labels += own.labels.size(0);
  in_head += prediction.loss.count;
  if (teacher) overlap = overlap.value_or(0) + overlap_of(*teacher, own);
}

void PredictionSums::add(const PredictionSums& other) {
  loss += other.loss;
  correct += other.correct;
  labels += other.labels;
  in_head += other.in_head;
  if (other.overlap) overlap = overlap.value_or(0) + *other.overlap;
}

nlohmann::json to_json(const PredictionSums& sums) {
  nlohmann::json json{{"layer", sums.layer},     {"weight", sums.weight}, {"loss", exact_text(sums.loss)},
                      {"correct", sums.correct}, {"labels", sums.labels}, {"in_head", sums.in_head}};
  if (sums.overlap) json["overlap"] = exact_text(*sums.overlap);
  return json;
}

void PredictionSums::add(const nlohmann::json& part) {
  layer = part.at("layer");
  weight = part.at("weight");
  PredictionSums other;
  other.loss = exact_number(part.at("loss"));
  other.correct = part.at("correct");
  other.labels = part.at("labels");
  other.in_head = part.at("in_head");
  if (part.contains("overlap")) other.overlap = exact_number(part.at("overlap"));
  add(other);
}

double weighted_loss(const std::vector<PredictionSums>& sums) {
  double loss = 0;
  for (const PredictionSums& one : sums) loss += one.weight * one.mean_loss();
  return loss;
}

}  // namespace draftsmith::train
