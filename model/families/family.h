// A family is what differs between models of one transformer: how config.json becomes a TransformerConfig and back, and
// what the weights are called. Everything else is one code for all.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/families/stored_layout.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

struct Family {
  std::string name;          // model_type in config.json, and TransformerConfig::family
  std::string architecture;  // architectures[0] in config.json

  // Fills in a configuration from config.json; problems with keys go to the reader's list. tied_head is what the flags
  // say: the stored tensors have the last word (load_model).
  TransformerConfig (*read_config)(ConfigReader& reader);
  // config.json, complete, as Transformers reads it.
  nlohmann::ordered_json (*write_config)(const TransformerConfig& config);
  // Where a parameter of ours (model/layers/parameters.h) lies in the files.
  StoredTensor (*stored)(const std::string& parameter, const TransformerConfig& config);

  std::string stored_embedding;                    // stored name of the shared embedding
  std::string stored_head;                         // stored name of an untied head
  std::vector<std::string> embedding_copies = {};  // stored names some writers add: they must equal the embedding
  // Stored names that the model never reads, '*' standing for anything; ignored with a log line.
  std::vector<std::string> unused = {};
  // What stored names begin with and older files leave out ("transformer."); the head's has none.
  std::string optional_prefix = {};
};

// Every family known.
const std::vector<Family>& families();

// The family of a parsed config.json, by its architectures (behind what stands before them for kinds of our own,
// model/kinds/model_kind.h) or else model_type. Errors (UserError): neither is there, or
// nobody knows them (the message lists what is known).
const Family& family_of(const nlohmann::json& config_json, const std::string& where);

// By TransformerConfig::family. Errors: UserError that lists the known ones.
const Family& family_named(const std::string& name);

// Where a parameter lies in the files of a family: those that a kind of our own adds under their own names.
StoredTensor stored_parameter(const Family& family, const std::string& parameter, const TransformerConfig& config);

// The families' own files.
Family t5_family();
Family mt5_family();
Family llama_family();
Family gpt2_family();
Family gpt_neox_family();
Family bloom_family();

}  // namespace draftsmith::model
