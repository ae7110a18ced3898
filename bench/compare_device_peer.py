"""What Transformers does on the device that tools/gpu measures: parity, decoding speed and training speed.

    compare_device_peer.py parity WORK --device cuda --dtypes fp32,bf16 --json FILE
    compare_device_peer.py decoding --shapes t5-large --device cuda --dtype bf16 --modes eager,compiled --json FILE
    compare_device_peer.py training --shapes t5-small --device cuda --precision bf16 --modes eager --json FILE

WORK is the folder of tools/gpu's parity step: models, lines of ids, and Draftsmith's outputs and logits of each type.
Writes {"records": [...]} to FILE, complete after each record.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import transformers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Layers of encoder and decoder each, width, heads, width of a head, feed-forward width, vocabulary.
SHAPES = {"t5-small": (6, 512, 8, 64, 2048, 32128), "t5-large": (24, 1024, 16, 64, 4096, 32128),
          "tiny-t5": (2, 32, 2, 16, 64, 96)}
WARMUPS = {"eager": 1, "compiled": 3}  # a compiled model compiles, then records its graphs


class Records:
    """Records in a file that is complete after each of them."""

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)
        self.all: list[dict] = []

    def add(self, **record: object) -> None:
        self.all.append(record)
        print(json.dumps(record), flush=True)
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(json.dumps({"records": self.all}, indent=1))
        os.replace(partial, self.path)


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def median_seconds(work: Callable[[], object], warmups: int, rounds: int, device: str) -> float:
    seconds = []
    for number in range(warmups + rounds):
        synchronize(device)
        begun = time.perf_counter()
        work()
        synchronize(device)
        if number >= warmups:
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


# ---- parity: the same model directories and ids ----


def lines_of(path: pathlib.Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()]


def greedy_ids(model: torch.nn.Module, sources: list[list[int]], new_tokens: int, device: str) -> list[list[int]]:
    """Outputs of one batch; prompts are filled up on the left, sources of an encoder on the right."""
    longest = max(map(len, sources))
    right = model.config.is_encoder_decoder
    rows = [[(1, token) for token in source] for source in sources]
    filled = [row + [(0, 0)] * (longest - len(row)) if right else [(0, 0)] * (longest - len(row)) + row for row in rows]
    mask, ids = torch.tensor(filled, device=device).unbind(-1)
    output = model.generate(ids, attention_mask=mask, do_sample=False, num_beams=1, min_new_tokens=new_tokens,
                            max_new_tokens=new_tokens)
    return [row[1 if right else longest:] for row in output.tolist()]


def forced_logits(model: torch.nn.Module, source: list[int], target: list[int], device: str) -> torch.Tensor:
    """Logits for each target token, given those before it: fp32 [T,V]."""
    given = torch.tensor([source], device=device)
    if model.config.is_encoder_decoder:
        before = torch.tensor([[0] + target[:-1]], device=device)
        logits = model(input_ids=given, attention_mask=torch.ones_like(given), decoder_input_ids=before).logits[0]
    else:
        whole = torch.tensor([source + target[:-1]], device=device)
        logits = model(input_ids=whole).logits[0, len(source) - 1:]
    return logits.float().cpu()


def compare_model(work: pathlib.Path, name: str, dtype: str, device: str) -> dict:
    import h5py
    kind = transformers.T5ForConditionalGeneration if name.startswith("t5") else transformers.LlamaForCausalLM
    model = kind.from_pretrained(work / name, dtype=DTYPES[dtype]).to(device).eval()
    sources, targets = lines_of(work / f"{name}.sources"), lines_of(work / f"{name}.targets")
    ours = json.loads((work / f"{name}.{dtype}.ids.json").read_text())
    equal = sum(a == b for a, b in zip(greedy_ids(model, sources, len(ours[0]), device), ours))
    worst, largest, same, positions = 0.0, 0.0, 0, 0
    with h5py.File(work / f"{name}.{dtype}.h5") as file:
        for number, (source, target) in enumerate(zip(sources, targets)):
            theirs = forced_logits(model, source, target, device)
            mine = torch.from_numpy(file[f"logits/{number}"][:])
            worst = max(worst, (theirs - mine).abs().max().item())
            largest = max(largest, theirs.abs().max().item())
            same += (theirs.argmax(-1) == mine.argmax(-1)).sum().item()
            positions += len(target)
    return {"lines": len(ours), "equal_lines": equal, "logits_difference": worst / largest,
            "equal_choices": same / positions}


def parity(options: argparse.Namespace, records: Records) -> None:
    work = pathlib.Path(options.work)
    with torch.inference_mode():
        for name in options.models.split(","):
            for dtype in options.dtypes.split(","):
                records.add(measure="parity", model=name, dtype=dtype, transformers=transformers.__version__,
                            **compare_model(work, name, dtype, options.device))


# ---- speed: random weights of the same shapes ----


def make_model(shape: str, device: str, dtype: torch.dtype, dropout: float = 0.0) -> torch.nn.Module:
    layers, width, heads, head_width, ff_width, vocabulary = SHAPES[shape]
    config = transformers.T5Config(
        vocab_size=vocabulary, d_model=width, d_kv=head_width, d_ff=ff_width, num_layers=layers,
        num_decoder_layers=layers, num_heads=heads, dropout_rate=dropout, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0)
    torch.manual_seed(1)
    with torch.device(device):
        return transformers.T5ForConditionalGeneration(config).to(dtype)


def generate_words(mode: str, backend: str) -> dict:
    """Arguments of generate() that make it compile its step, with a cache of fixed size."""
    if mode == "eager":
        return {}
    compiling = transformers.CompileConfig(mode="reduce-overhead", fullgraph=False, backend=backend)
    compiling._compile_all_devices = True
    return {"cache_implementation": "static", "compile_config": compiling}


def decoding(options: argparse.Namespace, records: Records) -> None:
    for mode, shape, batch in settings_of(options):
        torch._dynamo.reset()
        model = make_model(shape, options.device, DTYPES[options.dtype]).eval()
        ids = torch.randint(3, model.config.vocab_size, (batch, options.source), device=options.device)
        words = generate_words(mode, options.backend)

        def work() -> None:
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1,
                               min_new_tokens=options.new_tokens, max_new_tokens=options.new_tokens, **words)

        seconds = median_seconds(work, WARMUPS[mode], options.rounds, options.device)
        records.add(measure="peer decoding", program=f"Transformers {transformers.__version__}, {mode}", shape=shape,
                    dtype=options.dtype, batch=batch, ms_per_step=1e3 * seconds / options.new_tokens,
                    tokens_per_second=batch * options.new_tokens / seconds)


def settings_of(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    for mode in options.modes.split(","):
        for shape in options.shapes.split(","):
            for batch in map(int, options.batches.split(",")):
                yield mode, shape, batch


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


def training(options: argparse.Namespace, records: Records) -> None:
    for mode, shape, rows in settings_of(options):
        torch._dynamo.reset()
        model = make_model(shape, options.device, torch.float32, options.dropout).train()
        if mode == "compiled":
            model.forward = torch.compile(model.forward, backend=options.backend)
        step = training_step(options, model, rows)
        seconds = median_seconds(step, 2, options.rounds, options.device)
        records.add(measure="peer training", program=f"Transformers {transformers.__version__}, {mode}", shape=shape,
                    precision=options.precision, dropout=options.dropout, rows=rows, source=options.source,
                    target=options.target, ms_per_step=1e3 * seconds,
                    tokens_per_second=rows * options.target / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("parity", "decoding", "training"))
    parser.add_argument("work", nargs="?", help="of parity")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default="t5,llama")
    parser.add_argument("--dtypes", default="fp32,bf16,fp16")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--precision", default="bf16", choices=("fp32", "bf16"))
    parser.add_argument("--shapes", default="t5-large")
    parser.add_argument("--modes", default="eager")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--batches", default="1", help="rows, of training too")
    parser.add_argument("--source", type=int, default=32)
    parser.add_argument("--target", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    commands = {"parity": parity, "decoding": decoding, "training": training}
    commands[options.command](options, Records(options.json))


if __name__ == "__main__":
    main()
