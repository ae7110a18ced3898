// Keys of config.json that no family's list has: Transformers writes many that change nothing, and real directories
// have keys of any program.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "model/families/family.h"

namespace draftsmith::model {
namespace {

// Keys of every configuration of Transformers, of its tools and of other programs: they change no number of a model.
constexpr std::string_view kBookkeeping =
    " architectures model_type auto_map _name_or_path name_or_path _commit_hash dtype torch_dtype"
    " transformers_version tokenizer_class output_attentions output_hidden_states output_past return_dict use_cache"
    " use_bfloat16 torchscript id2label label2id num_labels _num_labels problem_type finetuning_task"
    " task_specific_params prefix is_decoder tie_encoder_decoder attn_implementation _attn_implementation"
    " _attn_implementation_autoset _experts_implementation _flash_attn_2_enabled gradient_checkpointing"
    " chunk_size_feed_forward classifier_dropout initializer_range sep_token_id unk_token_id model_max_length"
    " tie_last_hidden_states quantization_config pretraining_tp tf_legacy_loss unsloth_version unsloth_fixed ";

// Keys of other families by which the same weights would give other numbers.
constexpr std::string_view kOtherMathematics =
    " add_cross_attention alibi attention_chunk_size attention_multiplier attn_logit_softcapping attn_logit_scale"
    " clip_qkv embedding_multiplier final_logit_softcapping layer_types logit_scale logits_scaling mup_width_scale"
    " multi_query no_rope_layers num_experts num_local_experts parallel_attn partial_rotary_factor per_layer_config"
    " pruned_heads qk_layernorm qk_norm query_pre_attn_scalar residual_multiplier scale_emb scale_embedding scale_depth"
    " use_qk_norm use_sliding_window sliding_window ";

// Returns whether a value means that something is off: null, false, 0, a factor of 1, or nothing at all.
bool is_off(const nlohmann::json& value) {
  if (value.is_number()) return value == 0 || value == 1;
  return value.is_null() || value.empty() || value == false || value == "";
}

}  // namespace

bool lists(std::string_view names, const std::string& key) {
  return names.find(" " + key + " ") != std::string_view::npos;
}

void check_other_keys(ConfigKeys& keys, const nlohmann::json& config_json, bool (*known)(const std::string& key)) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config_json.items()) {
    if (keys.listed().contains(key) || lists(kBookkeeping, key) || known(key) || is_off(value)) continue;
    if (lists(kOtherMathematics, key)) {
      keys.reader().wrong(key, "would change what the model computes, and this family has no such key",
                          "nothing, or the value that switches it off");
    } else if (!key.starts_with("draft")) {  // keys of our own additions
      unknown.push_back(key);
    }
  }
  if (unknown.empty()) return;
  log_warning_once("{}: keys that Draftsmith does not know are ignored: {}", keys.reader().where(),
                   fmt::join(unknown, ", "));
}

}  // namespace draftsmith::model
