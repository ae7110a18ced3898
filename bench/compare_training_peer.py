"""Training speed of a plain PyTorch and Transformers loop, for bench/compare_training: prints JSON.

    compare_training_peer.py START STEPS ROWS DROPOUT THREADS TYPE ATTENTION WARMUP

START is a folder by bench_training_step --save-start: weights, and examples of several batches of ROWS, which steps
take in turns. TYPE is fp32 or bf16 (autocast); ATTENTION is sdpa, eager, or compiled: sdpa within torch.compile.
The learning rate grows during the first WARMUP steps (0: none).
"""

import contextlib
import json
import resource
import struct
import sys
import time

import torch
import transformers

WARM_UP = 1  # step before the timed ones
RATE = 1e-4


def peak_memory_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def copy_weights(path, model):
    """Fills the parameters from a safetensors file without mapping it, so that its pages do not count as memory."""
    targets = dict(model.named_parameters())
    with open(path, "rb", buffering=0) as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            target = targets.pop(name).detach()
            if entry["dtype"] != "F32" or list(target.shape) != entry["shape"]:
                sys.exit(f"{path}: {name} is {entry}, not fp32 of {list(target.shape)}")
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            view = memoryview(target.numpy()).cast("B")
            while view:
                view = view[file.readinto(view):]
    if targets:
        sys.exit(f"{path} lacks {sorted(targets)}")


def load(folder, dropout, attention):
    config = transformers.AutoConfig.from_pretrained(f"{folder}/model")
    config.dropout_rate = dropout
    config._attn_implementation = "eager" if attention == "eager" else "sdpa"
    model = transformers.T5ForConditionalGeneration(config).train()
    copy_weights(f"{folder}/model/model.safetensors", model)
    return model


def main():
    folder, steps, rows, dropout, threads, dtype, attention, warmup = sys.argv[1:]
    steps, rows, warmup = int(steps), int(rows), int(warmup)
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    before = peak_memory_mb()
    model = load(folder, float(dropout), attention)
    with open(f"{folder}/examples.json") as file:
        examples = json.load(file)
    sources, labels = (torch.tensor(examples[key]).split(rows) for key in ("sources", "targets"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    forward = torch.compile(model) if attention == "compiled" else model
    losses = []

    def one_step():
        batch = len(losses) % len(sources)
        with torch.autocast("cpu", torch.bfloat16) if dtype == "bf16" else contextlib.nullcontext():
            loss = forward(input_ids=sources[batch], attention_mask=torch.ones_like(sources[batch]),
                           labels=labels[batch]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (len(losses) + 1) / warmup if warmup else 1)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    for _ in range(WARM_UP):
        one_step()
    start = time.perf_counter()
    for _ in range(steps):
        one_step()
    seconds = time.perf_counter() - start
    print(json.dumps({"tokens_per_second": steps * labels[0].numel() / seconds, "losses": losses,
                      "memory_before_mb": before, "peak_memory_mb": peak_memory_mb()}))


if __name__ == "__main__":
    main()
