#!/usr/bin/env python3
"""References for tests/parity: what Transformers computes with small random T5 and mT5 models.

parity_t5.py make DIR   writes DIR/<name>/ (a model directory), DIR/<name>.reference.safetensors (a batch, its logits and
                        gradients) and DIR/<name>.greedy.json (sources and their greedy outputs)
parity_t5.py check DIR  loads every DIR/saved/<name>/ that Draftsmith wrote and compares it with the same references; prints
                        one line a problem and exits 1 when there is any
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MT5Config, MT5ForConditionalGeneration
from transformers import DynamicCache, EncoderDecoderCache, T5Config, T5ForConditionalGeneration
from transformers.utils import logging

NEW_TOKENS = 14
GREEDY_INPUTS = 200
PAD, EOS = 0, 1
HALF_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def configurations():
    """Odd sizes everywhere: d_kv * num_heads differs from d_model, encoder and decoder from each other in depth."""
    common = dict(dropout_rate=0.0, decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=EOS)
    return {
        "t5_v1_0": T5Config(vocab_size=101, d_model=24, d_kv=7, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3,
                            feed_forward_proj="relu", **common),
        "t5_v1_1": T5Config(vocab_size=97, d_model=20, d_kv=9, d_ff=33, num_layers=3, num_decoder_layers=1, num_heads=5,
                            feed_forward_proj="gated-gelu", tie_word_embeddings=False, **common),
        "t5_tied_unscaled": T5Config(vocab_size=67, d_model=18, d_kv=5, d_ff=31, num_layers=1, num_decoder_layers=2,
                                     num_heads=3, feed_forward_proj="gated-silu", tie_word_embeddings=False,
                                     relative_attention_num_buckets=12, relative_attention_max_distance=200, **common),
        "mt5": MT5Config(vocab_size=113, d_model=22, d_kv=6, d_ff=35, num_layers=2, num_decoder_layers=2, num_heads=5,
                         feed_forward_proj="gated-gelu", relative_attention_num_buckets=20,
                         relative_attention_max_distance=50, **common),
    }


def untied(name):
    return name in ("t5_v1_1", "mt5")


def make_model(name, config):
    torch.manual_seed(sum(name.encode()))
    kind = MT5ForConditionalGeneration if config.model_type == "mt5" else T5ForConditionalGeneration
    model = kind(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "layer_norm" in parameter_name:  # ones by default, which would hide a norm that is not applied
                parameter.uniform_(0.5, 1.5)
            if "relative_attention_bias" in parameter_name:  # too small by default to be seen in the logits
                parameter.normal_(std=1.0)
            if ".k." in parameter_name:
                parameter.mul_(1.5)
            if not untied(name) and (".o." in parameter_name or ".wo." in parameter_name):
                parameter.mul_(4)  # else a tied model only repeats its last token
    if untied(name):
        model.lm_head.weight = torch.nn.Parameter(torch.randn(config.vocab_size, config.d_model) * 0.5)
    with torch.no_grad():
        model.lm_head.weight[EOS] *= 2  # so that some rows end before the limit
    return model


def ragged(lengths, vocabulary, generator):
    """Random rows, right padded, with their mask."""
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    mask = torch.zeros_like(tokens)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(2, vocabulary, (length,), generator=generator)
        mask[row, :length] = 1
    return tokens, mask


def reference(model):
    """Logits of a batch that reaches beyond every bucket distance, and the gradients of its mean cross entropy."""
    generator = torch.Generator().manual_seed(5)
    vocabulary = model.config.vocab_size
    source, source_mask = ragged([150, 97, 1], vocabulary, generator)
    target, target_mask = ragged([260, 60, 5], vocabulary, generator)
    target[:, 0] = model.config.decoder_start_token_id
    labels, _ = ragged([260, 60, 5], vocabulary, generator)
    logits = model(input_ids=source, attention_mask=source_mask, decoder_input_ids=target).logits
    labels = labels.masked_fill(target_mask == 0, -100)
    loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    model.zero_grad()
    loss.backward()
    tensors = {"source": source, "source_lengths": source_mask.sum(1), "target": target,
               "target_lengths": target_mask.sum(1), "labels": labels, "logits": logits.detach(), "loss": loss.detach()}
    tensors.update({"grad/" + name: parameter.grad for name, parameter in model.named_parameters()})
    return {name: tensor.float().contiguous() for name, tensor in tensors.items()}


def greedy(model, sources):
    """Greedy outputs by Transformers' own generate, new tokens only, EOS included."""
    outputs = []
    for begin in range(0, len(sources), 50):
        rows = sources[begin:begin + 50]
        width = max(map(len, rows))
        tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        # A cache of our own: 5.23 builds one with as many layers as the encoder has.
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        generated = model.generate(input_ids=tokens, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False,
                                   num_beams=1, past_key_values=cache)
        for row in generated[:, 1:].tolist():
            outputs.append(row[:row.index(EOS) + 1] if EOS in row else row)
    return outputs


def greedy_sources(vocabulary):
    generator = torch.Generator().manual_seed(9)
    lengths = torch.randint(1, 25, (GREEDY_INPUTS,), generator=generator).tolist()
    return [torch.randint(2, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def write_model(root, name, model):
    model.save_pretrained(root / name)
    save_file(reference(model), root / f"{name}.reference.safetensors")
    sources = greedy_sources(model.config.vocab_size)
    with torch.no_grad():
        outputs = greedy(model, sources)
    (root / f"{name}.greedy.json").write_text(json.dumps({"sources": sources, "outputs": outputs}))


def write_half_precision(root, model):
    """t5_v1_0 as bf16 and fp16 directories; the references are of the rounded weights, computed in fp32."""
    for name, dtype in HALF_TYPES.items():
        rounded = T5ForConditionalGeneration(model.config).eval()
        rounded.load_state_dict({key: value.to(dtype).float() for key, value in model.state_dict().items()})
        save_file(reference(rounded), root / f"t5_{name}.reference.safetensors")
        rounded.to(dtype).save_pretrained(root / f"t5_{name}")


def write_tokenizer(root):
    import sentencepiece

    words = ["ka", "lo", "mi", "tu", "re", "sen", "dor", "pal", "ist", "um"]
    sentences = [" ".join(words[(i * k) % 10] + words[(i + k) % 10] for k in range(1, 6)) for i in range(300)]
    (root / "text").write_text("\n".join(sentences))
    sentencepiece.SentencePieceTrainer.train(
        input=str(root / "text"), model_prefix=str(root / "spiece"), vocab_size=40, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        minloglevel=2)


def make(root):
    for name, config in configurations().items():
        model = make_model(name, config)
        write_model(root, name, model)
        if name == "t5_v1_0":
            write_half_precision(root, model)
    write_tokenizer(root)


def check_logits(name, model, wanted, tolerance):
    with torch.no_grad():
        source = wanted["source"].long()
        mask = torch.arange(source.shape[1])[None, :] < wanted["source_lengths"][:, None]
        logits = model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=wanted["target"].long()).logits
    valid = torch.arange(logits.shape[1])[None, :] < wanted["target_lengths"][:, None]
    difference = (logits.float() - wanted["logits"])[valid].abs().max() / wanted["logits"][valid].abs().max()
    return [] if difference < tolerance else [f"{name}: logits differ by {difference:.2e}"]


def check_tokenizer(root, directory):
    import sentencepiece

    plain = sentencepiece.SentencePieceProcessor(model_file=str(root / "spiece.model"))
    loaded = AutoTokenizer.from_pretrained(directory)
    problems = []
    if len(loaded) != plain.vocab_size():
        problems.append(f"{directory.name}: tokenizer has {len(loaded)} ids, SentencePiece {plain.vocab_size()}")
    for text in ["kalo mitu resen", "dorpal  istum", "Unbekannt, 12"]:
        if loaded(text).input_ids != plain.encode(text) + [EOS]:
            problems.append(f"{directory.name}: {text!r} gives {loaded(text).input_ids}, not {plain.encode(text) + [EOS]}")
    return problems


def check_directory(root, directory):
    base, _, precision = directory.name.partition("-")
    model, info = AutoModelForSeq2SeqLM.from_pretrained(directory, output_loading_info=True)
    model.eval()
    problems = [f"{directory.name}: {kind} {sorted(map(str, info[kind]))}"
                for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[kind]]
    stored = HALF_TYPES.get(precision, torch.float32)
    if model.shared.weight.dtype != stored:
        problems.append(f"{directory.name}: loaded as {model.shared.weight.dtype}, not {stored}")
    if type(model).__name__ != ("MT5ForConditionalGeneration" if base == "mt5" else "T5ForConditionalGeneration"):
        problems.append(f"{directory.name}: loaded as {type(model).__name__}")
    wanted = load_file(root / f"{base}.reference.safetensors")
    problems += check_logits(directory.name, model.float(), wanted, 1e-4 if not precision else 0.05)
    if not precision:
        expected = json.loads((root / f"{base}.greedy.json").read_text())
        with torch.no_grad():
            outputs = greedy(model, expected["sources"])
        wrong = sum(a != b for a, b in zip(outputs, expected["outputs"]))
        if wrong:
            problems.append(f"{directory.name}: {wrong} of {len(outputs)} greedy outputs differ")
    if (directory / "spiece.model").exists():
        problems += check_tokenizer(root, directory)
    return problems


def check(root, check_one=check_directory):
    directories = sorted(path for path in (root / "saved").iterdir() if path.is_dir())
    if not directories:
        return ["nothing was saved"]
    return [problem for directory in directories for problem in check_one(root, directory)]


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    command, root = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        make(root)
        return 0
    problems = check(root)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
