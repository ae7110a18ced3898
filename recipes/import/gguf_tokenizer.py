"""The tokenizer of a GGUF file as Hugging Face's and SentencePiece's files; import_gguf.py uses it."""

import collections
import struct

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
          r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = [BYTES | {"use_regex": True}]
DIGITS = [{"type": "Digits", "individual_digits": True}] + GPT2


def split(pattern):
    return [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, BYTES]


# Steps that cut a text into words by llama.cpp's names of them; whether words that are pieces stay whole, and whether
# texts begin with BOS unless the file says so.
WORDS = {name: (steps, whole, whole) for steps, whole, names in (
    (GPT2, False, "gpt-2 phi-2 olmo jina-es jina-de"), (DIGITS, False, "smollm refact starcoder command-r codeshell"),
    (split(LLAMA3), True, "llama-bpe llama3 llama-v3 falcon3"), (split(LLAMA3), False, "dbrx smaug-bpe"),
    (split(LLAMA3.replace("{1,3}", "")), False, "qwen2 deepseek-r1-qwen"), (split(TEKKEN), True, "tekken"),
    (split(GPT4O), False, "gpt-4o llama4")) for name in names.split()}


class Tokens:
    """The tokenizer of a file, by id; those at the end that fill up the vocabulary are left out."""

    def __init__(self, model, vocabulary):
        get = lambda key, *more: model.value(f"tokenizer.ggml.{key}", *more)
        self.kind, self.texts = get("model", ..., str), get("tokens", ..., list)
        self.types, self.scores = get("token_type", [NORMAL] * len(self.texts), list), get("scores", None)
        self.merges, self.pre = get("merges", None), get("pre", "default")
        for name, found in (("tokens", self.texts), ("token_type", self.types), ("scores", self.scores)):
            if found is not None and len(found) != vocabulary:
                raise Refusal(f"tokenizer.ggml.{name} and the model's vocabulary disagree",
                              f"{vocabulary} entries, as token_embd.weight has rows", f"{len(found)}")
        sentences = self.kind in ("llama", "t5")
        if (needed := "scores" if sentences else "merges") and getattr(self, needed) is None:
            raise Refusal(f"the key tokenizer.ggml.{needed} is missing", f"as in all tokenizers of kind {self.kind}")
        usual = {"bos": 1, "eos": 2, "unknown": 0} if self.kind == "llama" else {}
        self.ids = {role: get(f"{role}_token_id", usual.get(role))
                    for role in ("bos", "eos", "unknown", "padding", "eot", "eom")}
        for role, token in self.ids.items():
            if token is not None and not 0 <= token < vocabulary:
                raise Refusal(f"tokenizer.ggml.{role}_token_id is no id of the model", f"0 to {vocabulary - 1}", token)
        if not sentences and self.pre not in WORDS:
            raise Refusal("the tokenizer cuts words in a way that is not read", f"tokenizer.ggml.pre of "
                          f"{', '.join(WORDS)}", self.pre)
        self.adds = (get("add_bos_token", self.kind == "llama" or not sentences and WORDS[self.pre][2]),
                     get("add_eos_token", self.kind == "t5"))
        self.space, self.joins = get("add_space_prefix", sentences), get("remove_extra_whitespaces", self.kind == "t5")
        self.characters = bytes(get("precompiled_charsmap", []))
        used = max((i + 1 for i, kind in enumerate(self.types) if kind != UNUSED), default=0)
        used = max([used] + [token + 1 for token in self.ids.values() if token is not None])
        self.texts, self.types = self.texts[:used], self.types[:used]
        if len(set(self.texts)) != used:
            twice = collections.Counter(self.texts).most_common(1)[0][0]
            raise Refusal("a token stands twice in tokenizer.ggml.tokens", "each token once", repr(twice))

    def text(self, role):
        return None if self.ids[role] is None else self.texts[self.ids[role]]

    def merges_of_scores(self):
        """Pairs of pieces that make a piece, best score first, as SentencePiece joins them."""
        ids = {text: i for i, text in enumerate(self.texts) if self.types[i] == NORMAL}
        found = [(-self.scores[i], ids[text[:cut]], ids[text[cut:]]) for text, i in ids.items()
                 for cut in range(1, len(text)) if text[:cut] in ids and text[cut:] in ids]
        return [[self.texts[left], self.texts[right]] for _, left, right in sorted(found)]

    def frame(self):
        """The post-processor, which adds BOS and EOS."""
        around = [[role] * (adds and self.ids[role] is not None) for role, adds in zip(("bos", "eos"), self.adds)]
        token = lambda role: {"SpecialToken": {"id": self.text(role), "type_id": 0}}
        parts = [[*map(token, around[0]), {"Sequence": {"id": name, "type_id": 0}}, *map(token, around[1])]
                 for name in "AB"]
        special = {self.text(role): {"id": self.text(role), "ids": [self.ids[role]], "tokens": [self.text(role)]}
                   for role in around[0] + around[1]}
        return {"type": "TemplateProcessing", "single": parts[0], "pair": parts[0] + parts[1],
                "special_tokens": special}

    def json(self):
        """tokenizer.json: byte-level BPE, or the BPE that a SentencePiece model of kind bpe is."""
        added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": kind != USER}
                 for i, (text, kind) in enumerate(zip(self.texts, self.types)) if kind in (UNKNOWN, CONTROL, USER)]
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                 "vocab": {text: i for i, text in enumerate(self.texts)}}
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "post_processor": self.frame(), "model": model}
        if self.kind == "gpt2":
            steps, model["ignore_merges"], _ = WORDS[self.pre]
            model["merges"] = [merge.split(" ") for merge in self.merges]
            pre = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
            return whole | {"pre_tokenizer": pre, "decoder": BYTES | {"use_regex": True}}
        model |= {"merges": self.merges_of_scores(), "unk_token": self.text("unknown"), "fuse_unk": True,
                  "byte_fallback": self.types.count(BYTE) == 256}
        spaces = [{"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]
        strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
        return whole | {
            "normalizer": {"type": "Sequence", "normalizers": self.space * [{"type": "Prepend", "prepend": "\u2581"}]
                           + spaces}, "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, *self.space * strip]}}

    def sentencepiece(self):
        """The SentencePiece model, a message of Protocol Buffers: fields by number, integers, texts and fp32."""

        def integer(value):
            value &= (1 << 64) - 1
            low = b""
            while value > 127:
                low, value = low + bytes([value & 127 | 128]), value >> 7
            return low + bytes([value])

        def message(*fields):
            out = b""
            for number, value in fields:
                if isinstance(value, (bytes, str)):
                    value = value.encode() if isinstance(value, str) else value
                    out += integer(number << 3 | 2) + integer(len(value)) + value
                else:
                    out += integer(number << 3 | 5) + struct.pack("<f", value) if isinstance(value, float) else \
                        integer(number << 3) + integer(value)
            return out

        pieces = [(1, message((1, text), (2, float(score)), (3, kind)))
                  for text, score, kind in zip(self.texts, self.scores, self.types)]
        roles = [("unknown", 40, 45), ("bos", 41, 46), ("eos", 42, 47), ("padding", 43, 48)]
        ids = [(number, -1 if self.ids[role] is None else self.ids[role]) for role, number, _ in roles]
        names = [(number, self.text(role)) for role, _, number in roles if self.text(role) is not None]
        training = message((3, 1 if self.kind == "t5" else 2), (4, len(self.texts)),
                           (35, int(self.types.count(BYTE) == 256)), *ids, *names)
        normalizer = message((2, self.characters), (3, int(self.space)), (4, int(self.joins)), (5, 1))
        return message(*pieces, (2, training), (3, normalizer))

    def settings(self, template):
        names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
        config = {"tokenizer_class": "PreTrainedTokenizerFast" if self.kind != "t5" else "T5Tokenizer",
                  "add_bos_token": bool(self.adds[0]), "add_eos_token": bool(self.adds[1]),
                  "clean_up_tokenization_spaces": False}
        config |= {"extra_ids": 0} if self.kind == "t5" else {}
        config |= {key: self.text(role) for role, key in names.items() if self.text(role) is not None}
        return config | ({"chat_template": template} if template else {})
