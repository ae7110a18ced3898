#!/usr/bin/env python3
"""What vLLM's own configuration classes say of a draft model; needs no GPU, runs nothing.

check_vllm_config.py TARGET DRAFTER   two model directories; prints what vLLM makes of the drafter, or fails with its error

Not part of ./test: vLLM and what it imports take gigabytes. `pip install vllm` in an environment of its own is enough; the
compiled parts are not needed (docs/reference/export.md says what was checked).
"""

import sys

from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig


def main():
    target, drafter = sys.argv[1:3]
    model = ModelConfig(model=target, dtype="float32", skip_tokenizer_init=True)
    speculative = SpeculativeConfig(method="draft_model", model=drafter, num_speculative_tokens=5,
                                    target_model_config=model, target_parallel_config=ParallelConfig())
    speculative.verify_equal_vocab_size_if_draft_model()
    draft = speculative.draft_model_config
    implementation, _ = draft.registry.resolve_model_cls(draft.architectures, model_config=draft)
    print(f"{drafter}: {speculative.method}, {draft.architectures[0]} by {implementation.__module__}, "
          f"{draft.get_vocab_size()} ids, {draft.max_model_len} positions")


if __name__ == "__main__":
    main()
