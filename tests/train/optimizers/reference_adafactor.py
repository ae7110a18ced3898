"""Runs transformers.optimization.Adafactor on the parameters, gradients and options in a folder.

usage: reference_adafactor.py FOLDER   (reads start, gradients, options.json; writes result.safetensors)
"""

import json
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers.optimization import Adafactor

folder = sys.argv[1]
torch.set_num_threads(1)
parameters = {name: torch.nn.Parameter(tensor) for name, tensor in load_file(f"{folder}/start.safetensors").items()}
gradients = load_file(f"{folder}/gradients.safetensors")
with open(f"{folder}/options.json") as file:
    options = json.load(file)
options["eps"] = tuple(options["eps"])
optimizer = Adafactor(list(parameters.values()), relative_step=False, warmup_init=False, **options)
steps = 1 + max(int(name.split("@")[1]) for name in gradients)
for step in range(steps):
    for name, parameter in parameters.items():
        parameter.grad = gradients[f"{name}@{step}"].clone()
    optimizer.step()
save_file({name: parameter.detach() for name, parameter in parameters.items()}, f"{folder}/result.safetensors")
