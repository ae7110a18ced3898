"""What Transformers does on the device that tools/gpu measures: speed of decoding and of training.

    compare_device_peer.py decoding --shapes t5-large --device cuda --dtype bf16 --json FILE
    compare_device_peer.py training --shapes t5-small --device cuda --precision bf16 --json FILE

Writes {"records": [...]} to FILE, complete after each record.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable

import torch
import transformers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Layers of encoder and decoder each, width, heads, width of a head, feed-forward width, vocabulary.
SHAPES = {"t5-small": (6, 512, 8, 64, 2048, 32128), "t5-large": (24, 1024, 16, 64, 4096, 32128),
          "tiny-t5": (2, 32, 2, 16, 64, 96)}


def add_record(options: argparse.Namespace, records: list[dict], **record: object) -> None:
    """Adds a record; the file is complete after each."""
    program = f"Transformers {transformers.__version__}"
    records.append({"measure": f"peer {options.command}", "program": program, **record})
    print(json.dumps(records[-1]), flush=True)
    partial = pathlib.Path(options.json + ".partial")
    partial.write_text(json.dumps({"records": records}, indent=1))
    os.replace(partial, options.json)


def median_seconds(work: Callable[[], object], warmups: int, options: argparse.Namespace) -> float:
    synchronize = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
    seconds = []
    for _ in range(warmups + options.rounds):
        synchronize()
        begun = time.perf_counter()
        work()
        synchronize()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[warmups:])


def make_model(shape: str, device: str, dtype: torch.dtype, dropout: float = 0.0) -> torch.nn.Module:
    layers, width, heads, head_width, ff_width, vocabulary = SHAPES[shape]
    config = transformers.T5Config(
        vocab_size=vocabulary, d_model=width, d_kv=head_width, d_ff=ff_width, num_layers=layers,
        num_decoder_layers=layers, num_heads=heads, dropout_rate=dropout, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0)
    torch.manual_seed(1)
    with torch.device(device):
        return transformers.T5ForConditionalGeneration(config).to(dtype)


def decoding(options: argparse.Namespace, shape: str, batch: int) -> dict:
    model = make_model(shape, options.device, DTYPES[options.dtype]).eval()
    ids = torch.randint(3, model.config.vocab_size, (batch, options.source), device=options.device)

    def work() -> None:
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1,
                           min_new_tokens=options.new_tokens, max_new_tokens=options.new_tokens)

    seconds = median_seconds(work, 1, options)
    return dict(shape=shape, dtype=options.dtype, batch=batch, ms_per_step=1e3 * seconds / options.new_tokens,
                tokens_per_second=batch * options.new_tokens / seconds)


def training_step(options: argparse.Namespace, model: torch.nn.Module, rows: int) -> Callable[[], None]:
    """A step as Draftsmith's: cross entropy, clipping at 1, AdamW."""
    vocabulary, device = model.config.vocab_size, options.device
    sources = torch.randint(3, vocabulary, (rows, options.source), device=device)
    labels = torch.randint(3, vocabulary, (rows, options.target), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    autocast = torch.autocast(device.split(":")[0], torch.bfloat16, enabled=options.precision == "bf16")

    def step() -> None:
        with autocast:
            loss = model(input_ids=sources, attention_mask=torch.ones_like(sources), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def training(options: argparse.Namespace, shape: str, rows: int) -> dict:
    model = make_model(shape, options.device, torch.float32, options.dropout).train()
    seconds = median_seconds(training_step(options, model, rows), 2, options)
    return dict(shape=shape, precision=options.precision, dropout=options.dropout, rows=rows, source=options.source,
                target=options.target, ms_per_step=1e3 * seconds, tokens_per_second=rows * options.target / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("decoding", "training"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--precision", default="bf16", choices=("fp32", "bf16"))
    parser.add_argument("--shapes", default="t5-large")
    parser.add_argument("--batches", default="1", help="rows, of training too")
    parser.add_argument("--source", type=int, default=32)
    parser.add_argument("--target", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    work = {"decoding": decoding, "training": training}[options.command]
    records: list[dict] = []
    for shape in options.shapes.split(","):
        for rows in map(int, options.batches.split(",")):
            add_record(options, records, **work(options, shape, rows))


if __name__ == "__main__":
    main()
