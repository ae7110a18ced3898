"""Prints the scalars that TensorBoard finds in a folder, as JSON: {tag: [[step, value], ...]}.

usage: reference_tensorboard.py FOLDER
"""

import json
import sys

from tensorboard.backend.event_processing import event_accumulator

accumulator = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
scalars = {tag: [[e.step, e.value] for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}
print(json.dumps(scalars))
