// Keys of config.json that no family's list has: Transformers writes many that change nothing, and real directories
// have keys of any program.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

// Keys of other families by which the same weights would give other numbers, with the number that switches them off.
// Null, false and nothing at all always do.
constexpr std::pair<std::string_view, std::optional<double>> kOtherMathematics[] = {
    {" attn_logit_scale embedding_multiplier logit_scale logits_scaling mup_width_scale partial_rotary_factor"
     " residual_multiplier rope_ratio scale_emb ",
     1.0},
    {" add_cross_attention alibi attention_chunk_size attn_logit_softcapping clip_qkv final_logit_softcapping"
     " kv_lora_rank logit_cap multi_query n_routed_experts no_rope_layer_interval num_experts num_local_experts"
     " parallel_attn qk_layernorm qk_norm rope_interleave rope_interleaved scale_embedding sliding_window"
     " sliding_window_pattern use_dynamic_ntk use_logn_attn use_parallel_residual use_qk_norm use_sliding_window ",
     0.0},
    {" attention_multiplier layer_types no_rope_layers norm_type per_layer_config pruned_heads query_pre_attn_scalar"
     " rope_local_base_freq rotary_dim scale_depth ",
     std::nullopt}};

}  // namespace

bool lists(std::string_view names, const std::string& key) {
  return names.find(" " + key + " ") != std::string_view::npos;
}

void check_other_keys(ConfigKeys& keys, const nlohmann::json& config_json, bool (*known)(const std::string& key)) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config_json.items()) {
    if (keys.listed().contains(key) || lists(kBookkeeping, key) || known(key)) continue;
    if (value.empty() || value == false || value == "") continue;
    const auto* other = std::ranges::find_if(kOtherMathematics, [&](const auto& row) { return lists(row.first, key); });
    if (other != std::end(kOtherMathematics)) {
      if (other->second && value.is_number() && value == *other->second) continue;
      keys.reader().wrong(
          key, "would change what the model computes, and this family has no such key",
          other->second ? fmt::format("nothing, or {}, which switches it off", *other->second) : "nothing");
    } else if (value != 0 && value != 1 && !key.starts_with("draft")) {  // draft: keys of our own additions
      unknown.push_back(key);
    }
  }
  if (unknown.empty()) return;
  log_warning_once("{}: keys that Draftsmith does not know are ignored: {}", keys.reader().where(),
                   fmt::join(unknown, ", "));
}

}  // namespace draftsmith::model
