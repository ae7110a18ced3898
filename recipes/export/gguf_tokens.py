"""The keys of a GGUF file that describe a tokenizer; export_gguf.py uses them."""

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
FOR_TRANSFORMERS = "--format hf exports it for Transformers"


def fields(message):
    """Numbers and contents of the fields of a message of Protocol Buffers."""
    place = 0

    def integer():
        nonlocal place
        value = shift = 0
        while True:
            byte, place = message[place], place + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while place < len(message):
        tag = integer()
        if tag & 7 == 0:
            yield tag >> 3, integer()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or integer()
        yield tag >> 3, message[place:place + size]
        place += size


def cuts(step):
    """The expressions by which a step of tokenizer.json cuts words; an empty one for what llama.cpp has not."""
    kind = step.get("type") if step else ""
    if kind == "Sequence":
        return [one for part in step["pretokenizers"] for one in cuts(part)]
    if kind == "Split":  # where an expression matches every text, both forms keep its matches and nothing else
        kept = (step["behavior"], step.get("invert", False)) in (("Isolated", False), ("Removed", True))
        return [step["pattern"].get("Regex", "") if kept else ""]
    if kind == "ByteLevel" and not step.get("add_prefix_space", True):
        return [GPT2_WORDS] if step.get("use_regex", True) else []
    return ["each digit" if kind == "Digits" and step.get("individual_digits") else ""]


def words_of(tokenizer):
    """llama.cpp's name of what cuts a text into words, and of whether words that are pieces stay whole."""
    file = Path(tokenizer["file"])
    parsed = json.loads(file.read_bytes()) if file.name == "tokenizer.json" else {"pre_tokenizer": GPT2[0]}
    normalizer = parsed.get("normalizer") or {"normalizers": []}
    if any(step.get("type") != "NFC" for step in normalizer.get("normalizers", [normalizer])):
        raise no_tokenizer("BPE with a normalizer other than NFC")
    step = parsed.get("pre_tokenizer")
    wanted = (cuts(step), tokenizer["ignore_merges"])
    for name, (steps, whole, _) in WORDS.items():
        if tokenizer["byte_level"] and ([one for part in steps for one in cuts(part)], whole) == wanted:
            return name
    raise no_tokenizer("BPE of another kind")


def no_tokenizer(found):
    return Refusal("llama.cpp has no such tokenizer", "a SentencePiece model of kind unigram or bpe, or byte-level BPE "
                   "that cuts words as GPT-2, Llama 3, Qwen, SmolLM or Mistral's tekken does", found, FOR_TRANSFORMERS)


def sentencepiece_keys(tokenizer, tokens):
    model, kind, characters, space, joins = list(fields(Path(tokenizer["sentencepiece"]).read_bytes())), 1, b"", 1, 1
    for number, content in model:
        if number == 1:
            piece = dict(fields(content))
            tokens.append((piece[1].decode(), piece.get(3, NORMAL), struct.unpack("<f", piece.get(2, bytes(4)))[0]))
        elif number == 2:
            kind = dict(fields(content)).get(3, 1)
        elif number == 3:
            normalizer = dict(fields(content))
            characters, space, joins = (normalizer.get(key, usual) for key, usual in ((2, b""), (3, 1), (4, 1)))
    if kind not in (1, 2):
        raise no_tokenizer(f"a SentencePiece model of kind {kind}")
    tokens += [(text, CONTROL if control else USER, -1000.0) for text, control in tokenizer["pieces"][len(tokens):]]
    return {"model": "t5" if kind == 1 else "llama", "pre": "default"}, {
        "add_space_prefix": bool(space), "remove_extra_whitespaces": bool(joins)} | (
        {"precompiled_charsmap": characters} if kind == 1 and characters else {})


def bpe_keys(tokenizer, tokens):
    before = {"model": "gpt2", "pre": words_of(tokenizer)}
    ids = dict(map(tuple, tokenizer["pieces"]))
    by_id = {token: (text, NORMAL) for text, token in ids.items()}
    for text, token, special in tokenizer["added"]:
        token = token if token >= 0 else ids.get(text, max(by_id) + 1)
        by_id[token] = (text, CONTROL if special else USER)
    tokens += [(*by_id.get(token, (f"[UNUSED{token}]", UNUSED)), 0.0) for token in range(max(by_id) + 1)]
    return before, {"merges": [" ".join(pair) for pair in tokenizer["merges"]]}


def tokenizer_keys(tokenizer, vocabulary):
    """Keys and values of a tokenizer; ids above its pieces become unused tokens."""
    if not tokenizer:
        return {"model": "no_vocab"}
    tokens, sentences = [], "sentencepiece" in tokenizer
    before, behind = (sentencepiece_keys if sentences else bpe_keys)(tokenizer, tokens)
    tokens += [(f"[UNUSED{token}]", UNUSED, -10000.0) for token in range(len(tokens), vocabulary)]
    texts, types, scores = (list(column) for column in zip(*tokens))
    roles = tokenizer["ids"]
    ends = sorted(tokenizer["ends"], key=lambda token: token != roles["eos"])
    if len(ends) > 3:
        raise Refusal("the model has more ids that end a text than a GGUF file", "at most 3", str(ends),
                      "shorten eos_token_id of generation_config.json")
    ids = {f"{role}_token_id": token for role, token in (roles | dict(zip(("eos", "eot", "eom"), ends))).items()
           if token >= 0}
    return before | {"tokens": texts} | ({"scores": scores} if sentences else {}) | {"token_type": types} | behind | \
        ids | {key: tokenizer[key] for key in ("add_bos_token", "add_eos_token")}
