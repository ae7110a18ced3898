// The explicit list of kinds of models.
#include "model/kinds/block_prediction.h"
#include "model/kinds/deep_tandem.h"
#include "model/kinds/shared_encoder.h"
#include "model/kinds/tandem.h"

namespace draftsmith::model {

namespace {

void read_ordinary(ConfigReader& reader, const std::string& /*where*/, TransformerConfig& config,
                   Problems& /*problems*/) {
  if (!config.encoder_decoder || config.encoder_layers >= 1) return;
  reader.wrong("num_layers", "leaves the model without an encoder, as only drafters that read another model's are",
               "1 or more");
}

void check_ordinary(const std::filesystem::path& directory) {
  ModelDirectory{directory};
}

}  // namespace

const ModelKind& ordinary_kind() {
  static const ModelKind kOrdinary = {.name = "an ordinary model",
                                      .hint = "give a directory that a Tandem was trained into",
                                      .read = read_ordinary,
                                      .check_directory = check_ordinary};
  return kOrdinary;
}

const std::vector<ModelKind>& model_kinds() {
  static const std::vector<ModelKind> kKinds = {ordinary_kind(), tandem_kind(), block_prediction_kind(),
                                                deep_tandem_kind(), shared_encoder_kind()};
  return kKinds;
}

}  // namespace draftsmith::model
