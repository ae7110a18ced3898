"""The parts of tools/gpu, which measures everything when a GPU is at hand."""
