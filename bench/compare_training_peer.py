"""Training speed of a plain PyTorch and Transformers loop, for bench/compare_training: prints JSON.

    compare_training_peer.py STEPS ROWS SOURCE TARGET DROPOUT THREADS
"""

import json
import sys
import time

import torch
import transformers

steps, rows, source, target = map(int, sys.argv[1:5])
dropout, threads = float(sys.argv[5]), int(sys.argv[6])
torch.set_num_threads(threads)
torch.manual_seed(1)
config = transformers.T5Config(
    vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6, num_heads=8,
    dropout_rate=dropout, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
model = transformers.T5ForConditionalGeneration(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
sources = torch.randint(3, 32003, (rows, source))
labels = torch.randint(3, 32003, (rows, target))
mask = torch.ones_like(sources)


def one_step():
    loss = model(input_ids=sources, attention_mask=mask, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


one_step()
start = time.perf_counter()
for _ in range(steps):
    last = one_step()
seconds = time.perf_counter() - start
print(json.dumps({"tokens_per_second": steps * rows * target / seconds, "seconds_per_step": seconds / steps, "loss": last}))
