"""What the originals in Python do.

usage: reference.py adafactor FOLDER   runs Transformers' Adafactor on start, gradients and options.json of the folder;
                                       writes result.safetensors
"""

import json
import sys


def run_adafactor(folder):
    import torch
    from safetensors.torch import load_file, save_file
    from transformers.optimization import Adafactor

    torch.set_num_threads(1)
    parameters = {name: torch.nn.Parameter(tensor) for name, tensor in load_file(f"{folder}/start.safetensors").items()}
    gradients = load_file(f"{folder}/gradients.safetensors")
    with open(f"{folder}/options.json") as file:
        options = json.load(file)
    options["eps"] = tuple(options["eps"])
    optimizer = Adafactor(list(parameters.values()), relative_step=False, warmup_init=False, **options)
    for step in range(1 + max(int(name.split("@")[1]) for name in gradients)):
        for name, parameter in parameters.items():
            parameter.grad = gradients[f"{name}@{step}"].clone()
        optimizer.step()
    save_file({name: parameter.detach() for name, parameter in parameters.items()}, f"{folder}/result.safetensors")


{"adafactor": run_adafactor}[sys.argv[1]](sys.argv[2])
