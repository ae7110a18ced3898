#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/tokenizers/tokenizer_files.h"

namespace draftsmith::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxJsonBytes = 256'000'000;
const IntRange kIds{0, kMaxTokenId};

// An object of the file with checked access to its members; the first problem is thrown as a UserError. Null counts as
// missing, and a member without a fallback is required.
class Component {
  template <class Read>
  auto read(const Read& get) const {
    Problems problems;
    JsonReader reader(value, where, problems);
    auto result = get(reader);
    problems.throw_if_any();
    return result;
  }

 public:
  Component(const json& object, const std::string& place) : value(object), where(place) {
    read([](JsonReader&) { return 0; });
  }

  bool flag(const char* key, std::optional<bool> fallback = std::nullopt) const {
    return read([&](JsonReader& reader) { return reader.get_bool(key, fallback); });
  }
  std::string text(const char* key, std::optional<std::string> fallback = std::nullopt) const {
    return read([&](JsonReader& reader) { return reader.get_string(key, fallback); });
  }
  int32_t id(const char* key) const {
    return static_cast<int32_t>(read([&](JsonReader& reader) { return reader.get_int(key, kIds); }));
  }
  std::string type() const { return text("type"); }
  const json* find(const char* key) const {
    return value.contains(key) && !value[key].is_null() ? &value[key] : nullptr;
  }
  const json& need(const char* key) const {
    if (const json* found = find(key)) return *found;
    refuse(fmt::format("the key '{}' is missing", key), "", brief(value));
  }
  const json& list(const char* key) const {
    if (!need(key).is_array()) refuse(fmt::format("'{}' has an unusable value", key), "a list", brief(need(key)));
    return need(key);
  }
  [[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& found) const {
    throw UserError({.where = where, .what = what, .expected = expected, .found = found});
  }

  const json& value;
  std::string where;
};

// A pattern: {"String": "..."} or {"Regex": "..."}, not empty.
struct PatternText {
  std::string text;
  bool regex = false;
};

PatternText parse_pattern(const Component& component) {
  const json& pattern = component.need("pattern");
  for (const char* kind : {"String", "Regex"}) {
    if (!pattern.is_object() || pattern.size() != 1 || !pattern.contains(kind) || !pattern[kind].is_string()) continue;
    if (pattern[kind] == "") component.refuse("'pattern' is empty", "a text or a regular expression", "\"\"");
    return {pattern[kind].get<std::string>(), std::string(kind) == "Regex"};
  }
  component.refuse("'pattern' has an unusable value", R"({"Regex": "..."} or {"String": "..."})", brief(pattern));
}

SplitPattern parse_search(const Component& component) {
  const PatternText pattern = parse_pattern(component);
  return pattern.regex ? regex_pattern(pattern.text, component.where) : literal_pattern(pattern.text);
}

// Returns what a decoder's Replace of a text replaces, and by what.
std::pair<std::string, std::string> parse_replace(const Component& component) {
  const PatternText pattern = parse_pattern(component);
  if (pattern.regex) component.refuse("this Replace is not supported", "a pattern of kind String", pattern.text);
  return {pattern.text, component.text("content")};
}

// Returns the bytes that base64 stands for.
std::string parse_base64(const Component& component, const char* key) {
  const std::string text = component.text(key);
  std::vector<unsigned char> bytes(text.size());
  const int size =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  const auto filling = std::ranges::count(text, '=');
  if (size < 0 || filling > 2) component.refuse(fmt::format("'{}' has an unusable value", key), "base64", brief(text));
  return {bytes.begin(), bytes.begin() + size - filling};
}

std::function<std::string(const std::string&)> parse_strip(const Component& component) {
  const bool left = component.flag("strip_left");
  const bool right = component.flag("strip_right");
  return [=](const std::string& text) {
    size_t begin = 0;
    size_t end = text.size();
    while (left && begin < end && is_white_space(code_point_at(text, begin).value)) {
      begin += code_point_at(text, begin).length;
    }
    while (right && end > begin && is_white_space(code_point_at(text, previous_character(text, end)).value)) {
      end = previous_character(text, end);
    }
    return text.substr(begin, end - begin);
  };
}

void parse_normalizer(const Component& component, TextNormalizer& normalizer) {
  const std::string type = component.type();
  if (type == "Sequence") {
    for (const json& part : component.list("normalizers")) parse_normalizer({part, component.where}, normalizer);
  } else if (type == "NFC") {
    normalizer.push_back(nfc);
  } else if (type == "Precompiled") {
    normalizer.push_back(precompiled(parse_base64(component, "precompiled_charsmap"), component.where));
  } else if (type == "Strip") {
    normalizer.push_back(parse_strip(component));
  } else if (type == "Prepend") {
    const std::string prefix = component.text("prepend");
    normalizer.push_back([prefix](const std::string& text) { return text.empty() ? text : prefix + text; });
  } else if (type == "Replace") {
    normalizer.push_back(
        [find = parse_search(component), content = component.text("content")](const std::string& text) {
          std::string out;
          size_t begin = 0;
          for (const TextMatch& match : find(text)) {
            out.append(text, begin, match.begin - begin).append(content);
            begin = match.end;
          }
          return out.append(text, begin);
        });
  } else {
    component.refuse("this normalizer is not supported",
                     "NFC, Precompiled, Strip, Prepend, Replace or a Sequence of them", type);
  }
}

PreTokenizerStep parse_split(const Component& component) {
  SplitPattern split = parse_search(component);
  const std::string name = component.text("behavior");
  const std::pair<const char*, SplitBehavior> behaviors[] = {{"Isolated", SplitBehavior::kIsolated},
                                                             {"Removed", SplitBehavior::kRemoved},
                                                             {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                                             {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                                             {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [known, behavior] : behaviors) {
    if (name == known) return make_split(std::move(split), behavior, component.flag("invert", false));
  }
  component.refuse("'behavior' has an unusable value",
                   "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous", name);
}

// The members of Metaspace, which is a pre-tokenizer and a decoder.
struct MetaspaceParts {
  std::string replacement;
  PrependScheme prepend = PrependScheme::kAlways;
};

MetaspaceParts parse_metaspace(const Component& component) {
  const std::string replacement = component.text("replacement");
  if (replacement.empty() || code_point_at(replacement, 0).length != replacement.size()) {
    component.refuse("'replacement' has an unusable value", "one character", "'" + replacement + "'");
  }
  const std::string scheme = component.text("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    component.refuse("'prepend_scheme' has an unusable value", "always, first or never", scheme);
  }
  PrependScheme prepend = scheme == "first" ? PrependScheme::kFirst : PrependScheme::kAlways;
  if (scheme == "never" || !component.flag("add_prefix_space", true)) prepend = PrependScheme::kNever;
  return {replacement, prepend};
}

// Parses one component or a Sequence. `byte_level` becomes true at ByteLevel, which must be the last component.
void parse_pre_tokenizer(const Component& component, PreTokenizer& pre_tokenizer, bool& byte_level) {
  const std::string type = component.type();
  if (byte_level) component.refuse("nothing may follow ByteLevel", "ByteLevel as the last component", type);
  if (type == "Sequence") {
    for (const json& part : component.list("pretokenizers")) {
      parse_pre_tokenizer({part, component.where}, pre_tokenizer, byte_level);
    }
  } else if (type == "Split") {
    pre_tokenizer.push_back(parse_split(component));
  } else if (type == "Digits") {
    const bool single = component.flag("individual_digits");
    pre_tokenizer.push_back(
        make_split(digits_pattern(), single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false));
  } else if (type == "Metaspace") {
    MetaspaceParts parts = parse_metaspace(component);
    pre_tokenizer.push_back(make_metaspace(std::move(parts.replacement), parts.prepend, component.flag("split", true)));
  } else if (type == "WhitespaceSplit") {
    pre_tokenizer.push_back(make_split(regex_pattern("\\s+", component.where), SplitBehavior::kRemoved, false));
  } else if (type == "ByteLevel") {
    if (component.flag("add_prefix_space")) pre_tokenizer.push_back(add_prefix_space);
    if (component.flag("use_regex", true)) {
      const SplitPattern words = regex_pattern(kGpt2Pattern, component.where);
      pre_tokenizer.push_back(make_split(words, SplitBehavior::kIsolated, false));
    }
    byte_level = true;
  } else {
    component.refuse("this pre-tokenizer is not supported",
                     "ByteLevel, Split, Digits, WhitespaceSplit, Metaspace or a Sequence of them", type);
  }
}

// Appends the ids of a template's special token.
void add_template_ids(const Component& component, const json& element, std::vector<int32_t>& ids) {
  if (!element.is_object() || !element.contains("SpecialToken")) {
    component.refuse("an element of 'single' has an unusable value", "SpecialToken or Sequence", brief(element));
  }
  const std::string name = Component(element["SpecialToken"], component.where).text("id");
  const json& special = component.need("special_tokens");
  if (!special.is_object() || !special.contains(name)) {
    component.refuse("a special token of 'single' is not in 'special_tokens'", name, brief(special));
  }
  for (const json& id : Component(special[name], component.where).list("ids")) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId)) {
      component.refuse("a special token's id is unusable", fmt::format("0 to {}", kMaxTokenId), brief(id));
    }
    ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
}

// Returns the id of ["</s>", 2], as RobertaProcessing and BertProcessing write a token.
int32_t paired_id(const Component& component, const char* key) {
  const json& pair = component.list(key);
  if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number_unsigned() || pair[1] > kMaxTokenId) {
    component.refuse(fmt::format("'{}' has an unusable value", key), R"(a token and its id, ["</s>", 2])", brief(pair));
  }
  return pair[1].get<int32_t>();
}

// Adds what a post-processor puts around a text: of several, later ones around earlier ones.
void parse_post_processor(const Component& component, TextFrame& frame) {
  const std::string type = component.type();
  std::vector<int32_t> before;
  if (type == "Sequence") {
    for (const json& part : component.list("processors")) parse_post_processor({part, component.where}, frame);
  } else if (type == "TemplateProcessing") {
    bool after_text = false;
    for (const json& element : component.list("single")) {
      if (element.is_object() && element.contains("Sequence")) {
        after_text = true;
      } else {
        add_template_ids(component, element, after_text ? frame.after : before);
      }
    }
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    before.push_back(paired_id(component, "cls"));
    frame.after.push_back(paired_id(component, "sep"));
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    component.refuse("this post-processor is not supported",
                     "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or a Sequence of them", type);
  }
  frame.before.insert(frame.before.begin(), before.begin(), before.end());
}

// The steps of a decoder, in the only supported order. The last one (ByteLevel, Metaspace) stands alone.
enum class DecoderStage { kReplace, kByteFallback, kFuse, kStrip, kAlone };

DecoderStage parse_decoder_step(const Component& component, TokenDecoder& decoder) {
  const std::string type = component.type();
  if (type == "ByteLevel") {
    decoder.byte_level = true;
    return DecoderStage::kAlone;
  }
  if (type == "Metaspace") {
    const MetaspaceParts parts = parse_metaspace(component);
    decoder.replaced.emplace_back(parts.replacement, " ");
    decoder.drops_first = parts.prepend != PrependScheme::kNever;
    return DecoderStage::kAlone;
  }
  if (type == "Fuse") return DecoderStage::kFuse;
  if (type == "ByteFallback") {
    decoder.byte_fallback = true;
    return DecoderStage::kByteFallback;
  }
  if (type == "Strip") {
    if (component.text("content") != " " || component.id("stop") != 0) {
      component.refuse("this Strip is not supported", "content \" \" and stop 0", "another");
    }
    decoder.strip = static_cast<size_t>(component.id("start"));
    return DecoderStage::kStrip;
  }
  if (type != "Replace") {
    component.refuse("this decoder is not supported",
                     "ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse, Strip", type);
  }
  decoder.replaced.push_back(parse_replace(component));
  return DecoderStage::kReplace;
}

void parse_decoder(const Component& component, TokenDecoder& decoder) {
  const bool sequence = component.type() == "Sequence";
  const json parts = sequence ? component.list("decoders") : json::array({component.value});
  DecoderStage last = DecoderStage::kReplace;
  bool fused = false;
  for (const json& part : parts) {
    const Component step(part, component.where);
    const DecoderStage stage = parse_decoder_step(step, decoder);
    const bool alone = stage != DecoderStage::kAlone || parts.size() == 1;
    if (stage < last || !alone || (stage == DecoderStage::kStrip && !fused)) {
      step.refuse("this order of decoders is not supported",
                  "ByteLevel or Metaspace alone, or Replace, ByteFallback, Fuse, Strip in this order", step.type());
    }
    fused = fused || stage == DecoderStage::kFuse;
    last = stage;
  }
}

std::vector<std::pair<std::string, std::string>> parse_merges(const json& merges, const std::string& where) {
  std::vector<std::pair<std::string, std::string>> result;
  result.reserve(merges.size());
  for (const json& merge : merges) {
    if (merge.is_string()) {
      result.push_back(parse_merge(merge.get_ref<const std::string&>(), where));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      result.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      throw UserError({.where = where,
                       .what = "a merge has an unusable value",
                       .expected = R"("a b" or ["a", "b"])",
                       .found = brief(merge)});
    }
  }
  return result;
}

// Returns a unigram model: a list of ["piece", score] by id, and the id of the unknown token.
BpeDescription parse_unigram(const Component& model) {
  BpeDescription description;
  description.byte_fallback = model.flag("byte_fallback", false);
  description.byte_level = false;
  const json& vocabulary = model.list("vocab");
  if (vocabulary.size() > static_cast<size_t>(kMaxTokenId)) {
    model.refuse("'vocab' is too long", fmt::format("at most {} pieces", kMaxTokenId), brief(vocabulary.size()));
  }
  for (const json& entry : vocabulary) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      model.refuse("a piece of 'vocab' has an unusable value", R"(["piece", score])", brief(entry));
    }
    description.pieces.emplace_back(entry[0].get<std::string>(), static_cast<int32_t>(description.pieces.size()));
    description.scores.push_back(entry[1].get<double>());
  }
  const auto unknown = static_cast<size_t>(model.id("unk_id"));
  if (unknown >= description.pieces.size()) {
    model.refuse("'unk_id' is outside the vocabulary", fmt::format("less than {}", description.pieces.size()),
                 fmt::format("{}", unknown));
  }
  description.unk_token = description.pieces[unknown].first;
  return description;
}

BpeDescription parse_model(const Component& model, bool byte_level) {
  if (model.find("type") != nullptr && model.type() == "Unigram") return parse_unigram(model);
  // Options that change ids and are not supported.
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = model.find(key);
    if (value == nullptr || *value == "") continue;
    model.refuse(fmt::format("'{}' is not supported", key), "null or \"\"", brief(*value));
  }
  const json* dropout = model.find("dropout");
  if (dropout != nullptr && *dropout != 0) {
    model.refuse("'dropout' is not supported: ids would differ from call to call", "null", brief(*dropout));
  }
  return {.pieces = parse_vocabulary(model.need("vocab"), model.where + ".vocab"),
          .merges = parse_merges(model.list("merges"), model.where + ".merges"),
          .unk_token = model.text("unk_token", ""),
          .fuse_unk = model.flag("fuse_unk", false),
          .byte_fallback = model.flag("byte_fallback", false),
          .ignore_merges = model.flag("ignore_merges", false),
          .byte_level = byte_level};
}

std::vector<AddedToken> parse_added_tokens(const json& list, const std::string& where) {
  std::vector<AddedToken> tokens;
  for (const json& entry : list) {
    const Component component(entry, where);
    tokens.push_back({.content = component.text("content"),
                      .id = component.id("id"),
                      .single_word = component.flag("single_word", false),
                      .lstrip = component.flag("lstrip", false),
                      .rstrip = component.flag("rstrip", false),
                      .normalized = component.flag("normalized", true),
                      .special = component.flag("special", false)});
  }
  return tokens;
}

// Assigns roles to the special tokens, by the configuration files or else by the families' names: tokenizer.json itself
// does not name roles.
void name_special_tokens(BpeParts& parts) {
  const TokenizerConfig config = read_tokenizer_config(parts.file.parent_path());
  const auto first_known = [&](const std::string& named, std::initializer_list<const char*> usual) -> std::string {
    if (!named.empty()) return named;
    for (const char* name : usual) {
      for (const AddedToken& token : parts.added) {
        if (token.special && token.content == name) return name;
      }
    }
    return {};
  };
  parts.bos = first_known(config.bos, {"<|begin_of_text|>", "<s>", "<|endoftext|>", "<bos>"});
  parts.eos = first_known(config.eos, {"<|end_of_text|>", "</s>", "<|endoftext|>", "<eos>"});
  parts.pad = first_known(config.pad, {"<pad>", "<|padding|>"});
  parts.unk = first_known(config.unk, {"<unk>", "<|endoftext|>"});
}

// Returns the type of a file's model, as text for messages; BPE too if it has merges and no type.
std::string model_type(const json& whole) {
  if (!whole.is_object() || !whole.contains("model") || !whole["model"].is_object()) return "no model";
  const json& model = whole["model"];
  if (model.contains("type") && !model["type"].is_null()) return model["type"] == "BPE" ? "BPE" : brief(model["type"]);
  return model.contains("merges") ? "BPE" : "no type";
}

}  // namespace

bool is_bpe_json(const fs::path& file) {
  return model_type(load_json(file)) == "BPE";
}

BpeParts read_tokenizer_json(const fs::path& file) {
  const std::string text = read_file(file, kMaxJsonBytes);
  const std::string name = file.string();
  const json whole = parse_json(text, name);
  if (const std::string type = model_type(whole); type != "BPE" && type != "\"Unigram\"") {
    throw UserError({.where = name,
                     .what = "the model of this tokenizer is not supported",
                     .expected = "a model of type BPE or Unigram",
                     .found = type});
  }
  BpeParts parts;
  parts.file = file;
  parts.hash = sha256(text);
  const Component root(whole, name);
  const auto part = [&](const char* key) { return Component(root.need(key), fmt::format("{}: {}", name, key)); };
  bool byte_level = false;
  if (root.find("normalizer")) parse_normalizer(part("normalizer"), parts.normalizer);
  if (root.find("pre_tokenizer")) parse_pre_tokenizer(part("pre_tokenizer"), parts.pre_tokenizer, byte_level);
  if (root.find("post_processor")) parse_post_processor(part("post_processor"), parts.frame);
  parse_decoder(part("decoder"), parts.decoder);  // required: none would mean pieces separated by blanks
  parts.model = parse_model(part("model"), byte_level);
  if (root.find("added_tokens")) parts.added = parse_added_tokens(root.list("added_tokens"), name + ": added_tokens");
  name_special_tokens(parts);
  return parts;
}

}  // namespace draftsmith::data
