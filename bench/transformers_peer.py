"""What Transformers does with a T5, for tools/gpu and bench/compare_training: speed of decoding and of training.

    transformers_peer.py decoding --shapes t5-large --device cuda --dtype bf16 [--json FILE]
    transformers_peer.py training --shapes t5-small --device cuda --dtype bf16 [--json FILE]
    transformers_peer.py training --start DIR --device cpu --warmup 400 ...

Weights and tokens are random, or those that bench_training_step --save-start wrote into DIR, whose batches the steps
take in turns. A training step is Draftsmith's: cross entropy, clipping at 1, AdamW; bf16 is autocast. Prints a JSON
record for each shape and batch; FILE is complete after each.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import time
from collections.abc import Callable

import torch
import transformers

RATE = 1e-4
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Layers of encoder and decoder each, width, heads, width of a head, feed-forward width, vocabulary.
SHAPES = {"t5-small": (6, 512, 8, 64, 2048, 32128), "t5-large": (24, 1024, 16, 64, 4096, 32128),
          "tiny-t5": (2, 32, 2, 16, 64, 96)}


def peak_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def seconds_of(work: Callable[[], object], warmups: int, options: argparse.Namespace) -> list[float]:
    """The time of each round."""
    synchronize = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
    seconds = []
    for _ in range(warmups + options.rounds):
        synchronize()
        begun = time.perf_counter()
        work()
        synchronize()
        seconds.append(time.perf_counter() - begun)
    return seconds[warmups:]


def make_model(options: argparse.Namespace, shape: str, dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(1)
    if options.start:
        config = transformers.AutoConfig.from_pretrained(options.start / "model")
    else:
        layers, width, heads, head_width, ff_width, vocabulary = SHAPES[shape]
        config = transformers.T5Config(
            vocab_size=vocabulary, d_model=width, d_kv=head_width, d_ff=ff_width, num_layers=layers,
            num_decoder_layers=layers, num_heads=heads, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    config.dropout_rate = options.dropout
    config._attn_implementation = "eager" if options.attention == "eager" else "sdpa"
    if options.start:
        return transformers.T5ForConditionalGeneration.from_pretrained(options.start / "model", config=config)
    with torch.device(options.device):
        return transformers.T5ForConditionalGeneration(config).to(dtype)


def decoding(options: argparse.Namespace, shape: str, batch: int) -> dict:
    model = make_model(options, shape, DTYPES[options.dtype]).eval()
    ids = torch.randint(3, model.config.vocab_size, (batch, options.source), device=options.device)

    def work() -> None:
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1,
                           min_new_tokens=options.new_tokens, max_new_tokens=options.new_tokens)

    seconds = statistics.median(seconds_of(work, 1, options))
    return dict(dtype=options.dtype, batch=batch, ms_per_step=1e3 * seconds / options.new_tokens,
                tokens_per_second=batch * options.new_tokens / seconds)


def training(options: argparse.Namespace, shape: str, rows: int) -> dict:
    """Speed by the mean of all steps after the first ones, as Draftsmith's."""
    model = make_model(options, shape, torch.float32).train()
    if options.start:
        examples = json.loads((options.start / "examples.json").read_text())
        sources, labels = (torch.tensor(examples[key]).split(rows) for key in ("sources", "targets"))
    else:
        sources, labels = ([torch.randint(3, model.config.vocab_size, (rows, length), device=options.device)]
                           for length in (options.source, options.target))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    forward = torch.compile(model) if options.attention == "compiled" else model
    autocast = torch.autocast(options.device.split(":")[0], torch.bfloat16, enabled=options.dtype == "bf16")
    losses: list[float] = []

    def step() -> None:
        batch = len(losses) % len(sources)
        with autocast:
            loss = forward(input_ids=sources[batch], attention_mask=torch.ones_like(sources[batch]),
                           labels=labels[batch]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (len(losses) + 1) / options.warmup if options.warmup else 1)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    seconds = statistics.mean(seconds_of(step, 1 if options.start else 2, options))
    return dict(precision=options.dtype, dropout=options.dropout, rows=rows, source=sources[0].shape[1],
                target=labels[0].shape[1], ms_per_step=1e3 * seconds, tokens_per_second=labels[0].numel() / seconds,
                losses=losses, peak_memory_mb=peak_memory_mb())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("decoding", "training"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--shapes", default="t5-large")
    parser.add_argument("--start", type=pathlib.Path)
    parser.add_argument("--batches", default="1", help="rows, of training too")
    parser.add_argument("--source", type=int, default=32)
    parser.add_argument("--target", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--attention", default="sdpa", help="sdpa, eager, or compiled: sdpa within torch.compile")
    parser.add_argument("--warmup", type=int, default=0, help="steps in which the learning rate grows; 0: none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's choice")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    if options.threads:
        torch.set_num_threads(options.threads)
    work = {"decoding": decoding, "training": training}[options.command]
    records: list[dict] = []
    for shape in options.shapes.split(","):
        for rows in map(int, options.batches.split(",")):
            records.append({"measure": f"peer {options.command}", "program": f"Transformers {transformers.__version__}",
                            "shape": shape, **work(options, shape, rows)})
            print(json.dumps(records[-1]), flush=True)
            if options.json:
                partial = options.json.with_suffix(".partial")
                partial.write_text(json.dumps({"records": records}, indent=1))
                os.replace(partial, options.json)


if __name__ == "__main__":
    main()
