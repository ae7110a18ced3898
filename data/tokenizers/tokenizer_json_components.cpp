#include "data/tokenizers/tokenizer_json_components.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "data/tokenizers/bpe_model.h"

namespace draftsmith::data {

namespace {

using nlohmann::json;

// A pattern: {"String": "..."} or {"Regex": "..."}.
struct PatternText {
  std::string text;
  bool regex = false;
};

PatternText parse_pattern(const JsonComponent& component, const std::string& where) {
  const json& pattern = component.need("pattern");
  for (const char* kind : {"String", "Regex"}) {
    if (pattern.is_object() && pattern.size() == 1 && pattern.contains(kind) && pattern[kind].is_string()) {
      return {pattern[kind].get<std::string>(), std::string(kind) == "Regex"};
    }
  }
  refuse(
      {where, "'pattern' has an unusable value", "{\"Regex\": \"...\"} or {\"String\": \"...\"}", brief(pattern), ""});
}

SplitBehavior parse_behavior(const JsonComponent& component, const std::string& where) {
  const std::string name = component.text("behavior");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  refuse({where, "'behavior' has an unusable value",
          "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous", name, ""});
}

void parse_split(const JsonComponent& component, const std::string& where, PreTokenizer& pre_tokenizer) {
  const PatternText pattern = parse_pattern(component, where);
  if (pattern.text.empty()) refuse({where, "'pattern' is empty", "a text or a regular expression", "\"\"", ""});
  SplitPattern split = pattern.regex ? SplitPattern::regex(pattern.text, where) : SplitPattern::literal(pattern.text);
  pre_tokenizer.add(make_split(std::move(split), parse_behavior(component, where), component.flag("invert", false)));
}

void parse_metaspace(const JsonComponent& component, const std::string& where, PreTokenizer& pre_tokenizer) {
  const std::string replacement = component.text("replacement");
  if (replacement.empty() || code_point_at(replacement, 0).length != replacement.size()) {
    refuse({where, "'replacement' has an unusable value", "one character", "'" + replacement + "'", ""});
  }
  const std::string scheme = component.text("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    refuse({where, "'prepend_scheme' has an unusable value", "always, first or never", scheme, ""});
  }
  const bool prefix = component.flag("add_prefix_space", true);
  const PrependScheme prepend = scheme == "never" || !prefix ? PrependScheme::kNever
                                : scheme == "first"          ? PrependScheme::kFirst
                                                             : PrependScheme::kAlways;
  pre_tokenizer.add(make_metaspace(replacement, prepend, component.flag("split", true)));
}

// Parses one component or a Sequence. `byte_level` becomes true at ByteLevel, which must be the last component.
void parse_step(const json& value, const std::string& where, PreTokenizer& pre_tokenizer, bool& byte_level) {
  const JsonComponent component(value, where);
  const std::string type = component.type();
  if (byte_level) refuse({where, "nothing may follow ByteLevel", "ByteLevel as the last component", type, ""});
  if (type == "Sequence") {
    for (const json& part : component.list("pretokenizers")) parse_step(part, where, pre_tokenizer, byte_level);
  } else if (type == "Split") {
    parse_split(component, where, pre_tokenizer);
  } else if (type == "Digits") {
    const bool single = component.flag("individual_digits");
    pre_tokenizer.add(
        make_split(SplitPattern::digits(), single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false));
  } else if (type == "Metaspace") {
    parse_metaspace(component, where, pre_tokenizer);
  } else if (type == "ByteLevel") {
    if (component.flag("add_prefix_space")) pre_tokenizer.add(make_prefix_space());
    if (component.flag("use_regex", true)) {
      pre_tokenizer.add(make_split(SplitPattern::regex(kGpt2Pattern, where), SplitBehavior::kIsolated, false));
    }
    byte_level = true;
  } else {
    component.unsupported("pre-tokenizer", "ByteLevel, Split, Digits, Metaspace or a Sequence of them");
  }
}

// Returns the ids of one element of a template: of a special token, or nothing for the text itself.
std::vector<int32_t> template_ids(const json& element, const JsonComponent& component, const std::string& where) {
  if (element.is_object() && element.contains("Sequence")) return {};
  if (!element.is_object() || !element.contains("SpecialToken")) {
    refuse({where, "an element of 'single' has an unusable value", "SpecialToken or Sequence", brief(element), ""});
  }
  const std::string name = JsonComponent(element["SpecialToken"], where).text("id");
  const json& special = component.need("special_tokens");
  if (!special.is_object() || !special.contains(name)) {
    refuse({where, "a special token of 'single' is not in 'special_tokens'", name, brief(special), ""});
  }
  std::vector<int32_t> ids;
  for (const json& id : JsonComponent(special[name], where).list("ids")) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(BpeModel::kMaxId)) {
      refuse({where, "a special token's id is unusable", fmt::format("0 to {}", BpeModel::kMaxId), brief(id), ""});
    }
    ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
  return ids;
}

void parse_template(const JsonComponent& component, const std::string& where, TextFrame& frame) {
  bool after_text = false;
  for (const json& element : component.list("single")) {
    const std::vector<int32_t> ids = template_ids(element, component, where);
    std::vector<int32_t>& side = after_text ? frame.after : frame.before;
    side.insert(side.end(), ids.begin(), ids.end());
    after_text = after_text || element.contains("Sequence");
  }
}

// The steps of a decoder, in the only supported order.
enum class DecoderStage { kReplace, kByteFallback, kFuse, kStrip, kByteLevel };

void parse_strip(const JsonComponent& component, const std::string& where, TokenDecoder& decoder) {
  if (component.text("content") != " " || component.number("stop", BpeModel::kMaxId) != 0) {
    refuse({where, "this Strip is not supported", "content \" \" and stop 0", "another", ""});
  }
  decoder.set_strip(static_cast<size_t>(component.number("start", BpeModel::kMaxId)));
}

DecoderStage parse_decoder_step(const JsonComponent& component, const std::string& where, TokenDecoder& decoder) {
  const std::string type = component.type();
  if (type == "ByteLevel") {
    decoder.use_byte_level();
    return DecoderStage::kByteLevel;
  }
  if (type == "Fuse") return DecoderStage::kFuse;
  if (type == "ByteFallback") {
    decoder.use_byte_fallback();
    return DecoderStage::kByteFallback;
  }
  if (type == "Strip") {
    parse_strip(component, where, decoder);
    return DecoderStage::kStrip;
  }
  if (type != "Replace") {
    component.unsupported("decoder", "ByteLevel, or a Sequence of Replace, ByteFallback, Fuse, Strip");
  }
  const PatternText pattern = parse_pattern(component, where);
  if (pattern.regex || pattern.text.empty()) {
    refuse({where, "this Replace is not supported", "a pattern of kind String, not empty", pattern.text, ""});
  }
  decoder.add_replace(pattern.text, component.text("content"));
  return DecoderStage::kReplace;
}

}  // namespace

void refuse(Problem problem) {
  throw UserError(std::move(problem));
}

JsonComponent::JsonComponent(const json& object, const std::string& where) : object_(object), where_(where) {
  if (!object.is_object()) refuse({where, "has an unusable value", "a JSON object", brief(object), ""});
}

const json* JsonComponent::find(const char* key) const {
  return object_.contains(key) && !object_[key].is_null() ? &object_[key] : nullptr;
}

void JsonComponent::wrong(const char* key, const std::string& expected, const json& found) const {
  refuse({where_, fmt::format("'{}' has an unusable value", key), expected, brief(found), ""});
}

const json& JsonComponent::need(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) refuse({where_, fmt::format("the key '{}' is missing", key), "", brief(object_), ""});
  return *value;
}

bool JsonComponent::flag(const char* key, std::optional<bool> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (!need(key).is_boolean()) wrong(key, "true or false", need(key));
  return need(key).get<bool>();
}

std::string JsonComponent::text(const char* key, std::optional<std::string> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (!need(key).is_string()) wrong(key, "a string", need(key));
  return need(key).get<std::string>();
}

int64_t JsonComponent::number(const char* key, int64_t max) const {
  const json& value = need(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(max)) {
    wrong(key, fmt::format("an integer from 0 to {}", max), value);
  }
  return static_cast<int64_t>(value.get<uint64_t>());
}

const json& JsonComponent::list(const char* key) const {
  if (!need(key).is_array()) wrong(key, "a list", need(key));
  return need(key);
}

void JsonComponent::unsupported(const std::string& kind, const std::string& known) const {
  refuse({where_, fmt::format("this {} is not supported", kind), known, type(), ""});
}

void parse_normalizer(const json& value, const std::string& where, TextNormalizer& normalizer) {
  const JsonComponent component(value, where);
  const std::string type = component.type();
  if (type == "Sequence") {
    for (const json& part : component.list("normalizers")) parse_normalizer(part, where, normalizer);
  } else if (type == "NFC") {
    normalizer.add_nfc();
  } else if (type == "Prepend") {
    normalizer.add_prepend(component.text("prepend"));
  } else if (type == "Replace") {
    const PatternText pattern = parse_pattern(component, where);
    if (pattern.regex || pattern.text.empty()) {
      refuse({where, "this Replace is not supported", "a pattern of kind String, not empty", pattern.text, ""});
    }
    normalizer.add_replace(pattern.text, component.text("content"));
  } else {
    component.unsupported("normalizer", "NFC, Prepend, Replace or a Sequence of them");
  }
}

bool parse_pre_tokenizer(const json& value, const std::string& where, PreTokenizer& pre_tokenizer) {
  bool byte_level = false;
  parse_step(value, where, pre_tokenizer, byte_level);
  return byte_level;
}

void parse_post_processor(const json& value, const std::string& where, TextFrame& frame) {
  const JsonComponent component(value, where);
  const std::string type = component.type();
  if (type == "Sequence") {
    for (const json& part : component.list("processors")) parse_post_processor(part, where, frame);
  } else if (type == "TemplateProcessing") {
    parse_template(component, where, frame);
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    component.unsupported("post-processor", "ByteLevel, TemplateProcessing or a Sequence of them");
  }
}

void parse_decoder(const json& value, const std::string& where, TokenDecoder& decoder) {
  const JsonComponent component(value, where);
  if (component.type() != "Sequence") {
    const DecoderStage stage = parse_decoder_step(component, where, decoder);
    if (stage == DecoderStage::kStrip) refuse({where, "this Strip is not supported", "Fuse before it", "Strip", ""});
    return;
  }
  DecoderStage last = DecoderStage::kReplace;
  bool fused = false;
  for (const json& part : component.list("decoders")) {
    const JsonComponent step(part, where);
    const DecoderStage stage = parse_decoder_step(step, where, decoder);
    const bool alone = stage != DecoderStage::kByteLevel || component.list("decoders").size() == 1;
    if (stage < last || !alone || (stage == DecoderStage::kStrip && !fused)) {
      refuse({where, "this order of decoders is not supported",
              "ByteLevel alone, or Replace, ByteFallback, Fuse, Strip in this order", step.type(), ""});
    }
    fused = fused || stage == DecoderStage::kFuse;
    last = stage;
  }
}

}  // namespace draftsmith::data
