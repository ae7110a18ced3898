#!/usr/bin/env python3
"""References for tests/parity/tokenizer_parity_test.cpp: what Hugging Face `tokenizers`, Transformers and
`sentencepiece` make of the same text. No tokenizer of a real family can be downloaded everywhere, so byte-level ones are
trained here, with each family's own normalizer, pre-tokenizer, added tokens, post-processor and decoder.

parity_tokenizers.py make DIR         writes DIR/lines.json (50,000 fuzzed lines and every 40th line of the shared data, or
                                      as DRAFTSMITH_TOKENIZER_STRIDE says), and for each tokenizer DIR/<name>/ (its files)
                                      and DIR/<name>.jsonl (ids and decoded text of each line, then of random ids; families
                                      with frames: 2,000 lines, each with its ids as source and target, and text)
"""

import json
import os
import random
import sys
import unicodedata
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sentencepiece
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M_100_CODES
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART_50_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

FUZZED_LINES = 50_000
RANDOM_DECODES = 2_000
VOCABULARY = 5_000
BLOOM_PATTERN = " ?[^(\\s|[.,!?…。，、।۔،])]+"
LLAMA3_PATTERN = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
QWEN_PATTERN = LLAMA3_PATTERN.replace("{1,3}", "")


def data_folder():
    given = os.environ.get("DRAFTSMITH_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[1] / ".." / "shared" / "data"


def data_lines(stride):
    """Every stride-th line of every text file, in the order of the files' names."""
    lines = []
    for path in sorted(data_folder().rglob("*")):
        if path.suffix in (".de", ".en", ".txt", ".jsonl", ".raw", ".tokens"):
            with open(path, encoding="utf-8", newline="\n") as file:
                lines += [line.rstrip("\n") for i, line in enumerate(file) if i % stride == 0]
    return lines


# Fuzzed text


def code_points(*ranges):
    return [chr(c) for first, last in ranges for c in range(first, last + 1)]


def alphabets():
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    numbers, marks = ([c for c in everything if unicodedata.category(c)[0] == kind] for kind in "NM")
    return [
        code_points((0x61, 0x7A)), code_points((0x41, 0x5A), (0x61, 0x7A)), code_points((0x30, 0x39)),
        code_points((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)), [" "], [" ", "\t", "\n", "\r"],
        list("\u0085\u00a0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000\u180e\u200b\ufeff\u0009\u000b\u000c\u001c\u001f "),
        code_points((0x00, 0x1F), (0x7F, 0x9F)), code_points((0xA1, 0x24F)), marks,
        list("aeiouAEIOUcnsyz") + code_points((0x300, 0x345)),
        *map(code_points, ((0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
                           (0xE00, 0xE7F), (0x1100, 0x11FF), (0xAC00, 0xACFF), (0x3040, 0x30FF), (0x4E00, 0x4FFF),
                           (0x20000, 0x200FF), (0xF900, 0xFAFF))), numbers,
        *map(code_points, ((0x2010, 0x206F), (0x2100, 0x22FF), (0x1F300, 0x1F64F), (0x1F1E6, 0x1F1FF),
                           (0xE000, 0xE0FF), (0x10400, 0x104FF))), everything,
    ]


def fixed_chunks():
    emoji = ["👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "❤️", "🧑🏿‍🚀", "1️⃣", "🇩🇪🇫🇷"]
    contractions = ["'s", "'S", "'ſ", "'t", "'T", "'re", "'RE", "'Ve", "'m", "'LL", "'lL", "'d", "''s", "’s", "'K", "'K", "'ß"]
    added = ["<|endoftext|>", "<|padding|>", "<unk>", "<s>", "</s>", "<pad>", "<|begin_of_text|>", "<|end_of_text|>",
             "<|reserved_special_token_7|>", "<|endoftext", "|>", "<0x0A>", "<word>", "<left>", "<right>", "<both>", "Straße",
             "Stras\u0301e", "é", "e\u0301", "▁", "▁▁", "Ġ", "Ċ"]
    spaces = [" " * n for n in (2, 3, 5, 8, 23, 24, 25, 30)] + ["\r\n", "\n\n\n", " \n ", "\t\t", "\r\r\n"]
    composed = ["\u0344", "\u1100\u1161\u11a8", "\ub098\u11a8", "\u212b", "\u1e9b\u0323", "\u0958", "\ufb1d", "\U0001d15e",
                "a\u0315\u0300\u05ae\u0062", "\U00011935\U00011930", "\U000114b9\U000114ba"]
    return emoji + contractions + added + spaces + composed


def fuzzed_lines():
    generator = random.Random(7)
    groups = alphabets()
    chunks = fixed_chunks()
    lines = ["", " ", "  ", "\n", "a", "'"]
    while len(lines) < FUZZED_LINES:
        parts = []
        for _ in range(generator.randint(1, 9)):
            if generator.random() < 0.35:
                parts.append(generator.choice(chunks))
            else:
                group = generator.choice(groups)
                parts.append("".join(generator.choices(group, k=generator.randint(1, 8))))
            if generator.random() < 0.4:
                parts.append(" ")
        lines.append("".join(parts))
    return lines


# Tokenizers of the families


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "trim_offsets": True, **options})


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(use_regex=False)])


def trained(lines, pre_tokenizer, normalizer=None, special=(), size=VOCABULARY):
    """A byte-level BPE tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def gpt2(lines):
    tokenizer = trained(lines, byte_level())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=True, special=True)])
    return tokenizer


def gpt_neox(lines):
    tokenizer = trained(lines, byte_level(), normalizers.NFC(), ["<|endoftext|>", "<|padding|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return tokenizer


def bloom(lines):
    tokenizer = trained(lines, split_then_bytes(BLOOM_PATTERN), None, ["<unk>", "<s>", "</s>", "<pad>"])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, use_regex=False)
    return tokenizer


def llama3(lines):
    tokenizer = trained(lines, split_then_bytes(LLAMA3_PATTERN))
    whole = json.loads(tokenizer.to_str())
    # Llama 3's vocabulary has pieces that its merges never make.
    whole["model"]["merges"] = [merge for i, merge in enumerate(whole["model"]["merges"]) if i % 20 != 19]
    whole["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    names = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(254)]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer


def qwen(lines):
    """An expression without a scanner of its own, NFC, and a prefix space."""
    tokenizer = trained(lines, split_then_bytes(QWEN_PATTERN), normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def expressions(lines):
    """Expressions with empty matches, lookbehind, lazy repetition, negated and intersected classes, and ignored case."""
    return trained(lines, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("(?<=[a-z])(?=[A-Z])|(?=(?:[0-9]{3})+(?![0-9]))"), "isolated"),
        pre_tokenizers.Split(Regex("[^\\S\\n]+?(?=\\S)|\\p{^L}(?!\\p{N})"), "merged_with_next"),
        pre_tokenizers.Split(Regex("(?i:[\\p{L}&&[^aeiou]]{2,5}?|\\P{N}x|\\p{L}ß)"), "merged_with_previous"),
        pre_tokenizers.Split(Regex("(?<![\\p{Letter}\\p{Number}])[-'’]++(?:s|\\S*+)"), "contiguous"),
        byte_level(use_regex=False)]))


def odd(lines):
    """Added tokens of every kind, digits alone, splits that merge, a prefix space, bytes that have no piece."""
    tokenizer = trained(lines, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split("e", "merged_with_previous"),
        pre_tokenizers.Split(Regex("\\s+"), "merged_with_next"), pre_tokenizers.Split(Regex("[^q]+"), "contiguous", invert=True),
        byte_level(add_prefix_space=True)]), normalizers.Sequence([normalizers.NFC()]))
    whole = json.loads(tokenizer.to_str())
    for byte in "ĀāĂÿ":
        used = [merge for merge in whole["model"]["merges"] if byte in "".join(merge)]
        if not used:
            whole["model"]["vocab"][f"unused {ord(byte)}"] = whole["model"]["vocab"].pop(byte)
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.add_tokens([
        AddedToken("<word>", single_word=True, normalized=False), AddedToken("<left>", lstrip=True, normalized=False),
        AddedToken("<right>", rstrip=True, normalized=True), AddedToken("<both>", lstrip=True, rstrip=True),
        AddedToken("Stra\u00dfe", single_word=True, normalized=True), AddedToken("e\u0301", normalized=True),
        AddedToken("\u212b", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False, special=True)])
    return tokenizer


def save(tokenizer, directory):
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))


def gpt2_files(tokenizer, directory):
    """GPT-2's old form, read by Transformers."""
    directory.mkdir()
    tokenizer.model.save(str(directory))
    configured(directory, add_prefix_space=True, pad_token="<pad>")
    (directory / "special_tokens_map.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False, "normalized": False, "rstrip": True,
                                          "single_word": False}, "unk_token": "<|endoftext|>"}))
    size = tokenizer.get_vocab_size(False)
    (directory / "added_tokens.json").write_text(json.dumps({"<word>": size, "</s>": size + 1}))
    return transformers.GPT2Tokenizer.from_pretrained(directory)._tokenizer


def merges_by_score(model, vocabulary):
    """The merges that SentencePiece's scores stand for, as Llama 2's tokenizer.json has them: the best first."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    merges = []
    for piece, id_ in vocabulary.items():
        parts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        merges += [(-processor.get_score(id_), left, right) for left, right in parts if left in vocabulary and right in vocabulary]
    return [[left, right] for _, left, right in sorted(merges, key=lambda merge: merge[0])]


def llama_json(directory):
    """A Llama's SentencePiece model as Transformers 5 saves it, and in the older form: with normalizers, and with the
    merges of runs of blanks last (Transformers 5.23 puts them first, which changes ids; SentencePiece has them last). And
    the latter in Gemma's form, without a blank at the start."""
    source = directory / "llama_source"
    source.mkdir()
    model = data_folder() / "models" / "llama32k_tokenizer" / "tokenizer.model"
    (source / "tokenizer.model").write_bytes(model.read_bytes())
    configured(source, tokenizer_class="LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    saved = transformers.AutoTokenizer.from_pretrained(source)._tokenizer
    whole = json.loads(saved.to_str())
    whole["pre_tokenizer"] = None
    whole["model"]["merges"] = merges_by_score(model, whole["model"]["vocab"])
    whole["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    gemma = {**whole, "normalizer": whole["normalizer"]["normalizers"][1],
             "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                               "invert": False},
             "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                          {"type": "ByteFallback"}, {"type": "Fuse"}]}}
    return saved, *(Tokenizer.from_str(json.dumps(form)) for form in (whole, gemma))


# Translation and summarising families: small SentencePiece models in the files that their directories have


def trained_model(path, lines, kind, size=1_500, **ids):
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(path.with_suffix("")),
                                             model_type=kind, vocab_size=size, num_threads=1, minloglevel=4, **ids)
    path.with_suffix(".model").rename(path)
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def numbered(directory, models, tokens):
    """vocab.json with the given tokens first, then the models' pieces."""
    pieces = [model.id_to_piece(i) for model in models for i in range(3, model.get_piece_size())]
    names = list(dict.fromkeys(tokens + pieces))
    (directory / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))


def configured(directory, **config):
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def marian(directory, lines):
    models = [trained_model(directory / name, half, "unigram") for name, half in (("source.spm", lines[::2]),
                                                                                 ("target.spm", lines[1::2]))]
    numbered(directory, models, ["</s>", "<unk>", ">>fra<<"])
    vocabulary = json.loads((directory / "vocab.json").read_text())
    (directory / "vocab.json").write_text(json.dumps({**vocabulary, "<pad>": len(vocabulary)}))
    configured(directory, tokenizer_class="MarianTokenizer")


def m2m_100(directory, lines):
    model = trained_model(directory / "sentencepiece.bpe.model", lines, "bpe")
    numbered(directory, [model], ["<s>", "<pad>", "</s>", "<unk>"])
    configured(directory, tokenizer_class="M2M100Tokenizer")
    (directory / "special_tokens_map.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "</s>",
        "additional_special_tokens": [f"__{code}__" for code in M2M_100_CODES["m2m100"]]}))


def one_model(file, kind, ids=None, **config):
    """The builder of a family whose vocabulary is its SentencePiece model's."""
    def build(directory, lines):
        trained_model(directory / file, lines, kind, **(ids or {}))
        configured(directory, **config)
    return build


def byte_pairs(family, words=None, **config):
    """The builder of a byte-level family: BART's two files, or tokenizer.json where it cuts words in its own way."""
    def build(directory, lines):
        tokenizer = trained(lines, words or byte_level(), None, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        tokenizer.save(str(directory / "tokenizer.json")) if words else tokenizer.model.save(str(directory))
        configured(directory, **config)
        (directory / "config.json").write_text(json.dumps({"model_type": family}))
    return build


PADDING_FIRST = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
# Builders of directories, most of translation families. Of a family `_json` only what Transformers saves is kept.
TRANSLATION = {
    "marian": marian,
    "m2m_100": m2m_100,
    "mbart_50": one_model("sentencepiece.bpe.model", "unigram", tokenizer_class="MBart50Tokenizer",
                          mask_token="<mask>", additional_special_tokens=MBART_50_CODES),
    "nllb_json": one_model("sentencepiece.bpe.model", "bpe", tokenizer_class="NllbTokenizer",
                           additional_special_tokens=NLLB_CODES),
    "pegasus": one_model("spiece.model", "unigram", PADDING_FIRST, tokenizer_class="PegasusTokenizer"),
    "t5_json": one_model("spiece.model", "unigram", PADDING_FIRST, tokenizer_class="T5Tokenizer"),
    "bart": byte_pairs("bart", tokenizer_class="BartTokenizer"),
    "opt": byte_pairs("opt", tokenizer_class="GPT2Tokenizer", add_bos_token=True, bos_token="</s>", eos_token="</s>"),
    # The class that their files name is not the one that Transformers reads them with.
    "granite": byte_pairs("granite", pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()]),
                          tokenizer_class="GPT2Tokenizer"),
    "olmo2": byte_pairs("olmo2", split_then_bytes(LLAMA3_PATTERN), tokenizer_class="GPT2Tokenizer"),
    "byt5": lambda directory, _: configured(directory, tokenizer_class="ByT5Tokenizer"),
}
LANGUAGES = {"m2m_100": ("de", "fr"), "mbart_50": ("de_DE", "fr_XX"), "nllb_json": ("deu_Latn", "fra_Latn")}
TRANSLATION_LINES = 2_000


def translation_reference(root, name, lines):
    """The directory of a family, and of each line the ids as source and as target, and the text of the first."""
    directory = root / name
    directory.mkdir()
    TRANSLATION[name](directory, lines)
    languages = dict(zip(("src_lang", "tgt_lang"), LANGUAGES.get(name, ())))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, **languages)
    with open(root / f"{name}.jsonl", "w") as file:
        for line in lines:
            ids = tokenizer(line)["input_ids"]
            entry = [line, ids, tokenizer(text_target=line)["input_ids"], tokenizer.decode(ids, skip_special_tokens=True)]
            file.write(json.dumps(entry) + "\n")
    if name.endswith("_json"):
        for path in directory.iterdir():
            path.unlink()
        tokenizer.save_pretrained(directory)


# Files


def write_reference(path, lines, encode, decode, vocabulary):
    """encode and decode take and give lists."""
    generator = random.Random(11)
    with open(path, "w") as file:
        for begin in range(0, len(lines), 10_000):
            ids = encode(lines[begin:begin + 10_000])
            file.writelines(json.dumps(entry) + "\n" for entry in zip(ids, decode(ids)))
        ids = [[generator.randrange(vocabulary) for _ in range(generator.randint(1, 40))] for _ in range(RANDOM_DECODES)]
        file.writelines(json.dumps(entry) + "\n" for entry in zip(ids, decode(ids)))


def reference_of(root, name, tokenizer, lines):
    vocabulary = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    write_reference(root / f"{name}.jsonl", lines,
                    lambda batch: [e.ids for e in tokenizer.encode_batch_fast(batch, add_special_tokens=False)],
                    lambda ids: tokenizer.decode_batch(ids, skip_special_tokens=True), vocabulary)


def sentencepiece_reference(root, name, model, lines):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    write_reference(root / f"{name}.jsonl", lines, lambda batch: [processor.encode(line) for line in batch],
                    lambda ids: [processor.decode(row) for row in ids], processor.vocab_size())


def make(root):
    lines = fuzzed_lines() + data_lines(int(os.environ.get("DRAFTSMITH_TOKENIZER_STRIDE", "40")))
    (root / "lines.json").write_text(json.dumps(lines))
    text = data_lines(61)[:9000]  # to train on
    families = {build.__name__: build(text) for build in (gpt2, gpt_neox, bloom, llama3, qwen, expressions, odd)}
    families["llama"], families["llama_old"], families["gemma"] = llama_json(root)
    for name, tokenizer in families.items():
        save(tokenizer, root / name)
        reference_of(root, name, tokenizer, lines)
    reference_of(root, "gpt2_files", gpt2_files(gpt2(text), root / "gpt2_files"), lines)
    shown = [line for line in (" ".join(line.split()) for line in data_lines(61)) if line]
    shown = shown[::len(shown) // TRANSLATION_LINES][:TRANSLATION_LINES]
    for name in TRANSLATION:
        translation_reference(root, name, shown)
    models_folder = data_folder() / "models"
    for name in ("llama32k_tokenizer", "stories260k_hf"):
        sentencepiece_reference(root, name, models_folder / name / "tokenizer.model", lines)


if __name__ == "__main__":
    make(Path(sys.argv[2])) if len(sys.argv) == 3 and sys.argv[1] == "make" else sys.exit(__doc__)
