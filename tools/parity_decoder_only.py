#!/usr/bin/env python3
"""References for tests/parity: what Transformers computes with small random Llama, GPT-2, GPT-NeoX and BLOOM models.

parity_decoder_only.py make DIR   writes DIR/<name>/ (a model directory), DIR/<name>.reference.safetensors (a batch, its
                                  logits and gradients) and DIR/<name>.greedy.json (prompts and their greedy outputs)
parity_decoder_only.py check DIR  loads every DIR/saved/<name>/ that Draftsmith wrote and compares it with the same
                                  references; prints one line a problem and exits 1 when there is any
parity_decoder_only.py stories DIR MODEL TEXT   writes DIR/stories.json: greedy outputs of a model directory for prompts
                                  of token ids cut from a text
parity_decoder_only.py processors DIR   writes DIR/processors.json: greedy outputs of a made model under generation
                                  settings that change logits
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, GPTNeoXConfig, LlamaConfig
from transformers.utils import logging

from parity_t5 import EOS, NEW_TOKENS, PAD, check, greedy_sources, ragged

STORIES = 100
PROCESSED = 60
PROCESSORS = [
    {"encoder_repetition_penalty": 2.0},
    {"encoder_no_repeat_ngram_size": 1},
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    {"min_length": 20},
    {"min_length": 25, "min_new_tokens": 3},
]


def configurations():
    """Odd sizes: shared key heads, head widths that do not divide the model's, heads that are no power of two."""
    ids = dict(bos_token_id=2, eos_token_id=EOS, pad_token_id=PAD)
    llama3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 64}
    return {
        "llama3": LlamaConfig(vocab_size=101, hidden_size=24, intermediate_size=41, num_hidden_layers=3,
                              num_attention_heads=6, num_key_value_heads=2, head_dim=10, max_position_embeddings=512,
                              rope_parameters=llama3, attention_bias=True, tie_word_embeddings=False, **ids),
        "llama_linear": LlamaConfig(vocab_size=97, hidden_size=20, intermediate_size=33, num_hidden_layers=2,
                                    num_attention_heads=5, num_key_value_heads=5, head_dim=4, mlp_bias=True,
                                    max_position_embeddings=512, tie_word_embeddings=True,
                                    rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}, **ids),
        "gpt2": GPT2Config(vocab_size=89, n_embd=24, n_head=3, n_layer=2, n_inner=37, n_positions=300, resid_pdrop=0.0,
                           embd_pdrop=0.0, attn_pdrop=0.0, **ids),
        "gpt_neox": GPTNeoXConfig(vocab_size=103, hidden_size=40, intermediate_size=44, num_hidden_layers=3,
                                  num_attention_heads=5, rotary_pct=0.5, max_position_embeddings=512, **ids),
        "gpt_neox_serial": GPTNeoXConfig(vocab_size=83, hidden_size=24, intermediate_size=50, num_hidden_layers=2,
                                         num_attention_heads=2, rotary_pct=1.0, max_position_embeddings=512,
                                         use_parallel_residual=False, attention_bias=False, **ids),
        "bloom": BloomConfig(vocab_size=107, hidden_size=30, n_head=5, n_layer=3, hidden_dropout=0.0,
                             attention_dropout=0.0, **ids),
    }


def make_model(name, config):
    """Random weights large enough that every norm, bias and position shows in the logits."""
    torch.manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                if parameter_name.endswith("bias"):
                    parameter.normal_(std=0.2)
                else:
                    parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(std=1.2 / parameter.shape[1] ** 0.5)
        model.get_output_embeddings().weight[EOS] *= 2  # so that some rows end before the limit
    return model


def reference(model):
    """Logits of a batch of whole sequences and the gradients of its mean cross entropy."""
    generator = torch.Generator().manual_seed(5)
    vocabulary = model.config.vocab_size
    target, mask = ragged([260, 60, 5], vocabulary, generator)
    labels, _ = ragged([260, 60, 5], vocabulary, generator)
    logits = model(input_ids=target, attention_mask=mask).logits
    labels = labels.masked_fill(mask == 0, -100)
    loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    model.zero_grad()
    loss.backward()
    tensors = {"target": target, "target_lengths": mask.sum(1), "labels": labels, "logits": logits.detach(),
               "loss": loss.detach()}
    tensors.update({"grad/" + name: parameter.grad for name, parameter in model.named_parameters()})
    return {name: tensor.float().contiguous() for name, tensor in tensors.items()}


def greedy(model, prompts, new_tokens=NEW_TOKENS, **settings):
    """Greedy outputs by Transformers' own generate, new tokens only, EOS included. Prompts of one length go together."""
    outputs = [None] * len(prompts)
    for length in sorted({len(prompt) for prompt in prompts}):
        chosen = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
        tokens = torch.tensor([prompts[i] for i in chosen])
        generated = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new_tokens,
                                   do_sample=False, num_beams=1, **settings)
        for i, row in zip(chosen, generated[:, length:].tolist()):
            eos = model.config.eos_token_id
            outputs[i] = row[:row.index(eos) + 1] if eos in row else row
    return outputs


def make(root):
    for name, config in configurations().items():
        model = make_model(name, config)
        model.save_pretrained(root / name)
        save_file(reference(model), root / f"{name}.reference.safetensors")
        prompts = greedy_sources(config.vocab_size)
        with torch.no_grad():
            outputs = greedy(model, prompts)
        (root / f"{name}.greedy.json").write_text(json.dumps({"sources": prompts, "outputs": outputs}))
        if name == "gpt2":
            write_pickled(root / "gpt2_pickled", model)


def write_pickled(directory, model):
    """The directory form of before safetensors."""
    directory.mkdir()
    model.config.save_pretrained(directory)
    torch.save(model.state_dict(), directory / "pytorch_model.bin")


def check_directory(root, directory):
    model, info = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    model.eval()
    name = directory.name
    problems = [f"{name}: {kind} {sorted(map(str, info[kind]))}"
                for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[kind]]
    wanted = load_file(root / f"{name}.reference.safetensors")
    mask = torch.arange(wanted["target"].shape[1])[None, :] < wanted["target_lengths"][:, None]
    with torch.no_grad():
        logits = model(input_ids=wanted["target"].long(), attention_mask=mask.long()).logits
    difference = (logits - wanted["logits"])[mask].abs().max() / wanted["logits"][mask].abs().max()
    if difference > 1e-4:
        problems.append(f"{name}: logits differ by {difference:.2e}")
    expected = json.loads((root / f"{name}.greedy.json").read_text())
    with torch.no_grad():
        outputs = greedy(model, expected["sources"])
    wrong = sum(a != b for a, b in zip(outputs, expected["outputs"]))
    if wrong:
        problems.append(f"{name}: {wrong} of {len(outputs)} greedy outputs differ")
    return problems


def stories(root, directory, text):
    """Prompts: the first ids of stories, with BOS, as the model's own tokenizer gives them."""
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    begins = [story.strip() for story in text.read_text().split("<|endoftext|>")]
    prompts = [[tokenizer.bos_id()] + tokenizer.encode(story)[:4 + i % 20] for i, story in
               enumerate([story for story in begins if len(story) > 100][:STORIES])]
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    with torch.no_grad():
        outputs = greedy(model, prompts, 60)
    (root / "stories.json").write_text(json.dumps({"sources": prompts, "outputs": outputs}))


def processors(root):
    """Outputs of one model with each of PROCESSORS, and with words banned that it writes without."""
    records = []
    name = "llama3"
    model = AutoModelForCausalLM.from_pretrained(root / name).eval()
    prompts = greedy_sources(model.config.vocab_size)[:PROCESSED]
    with torch.no_grad():
        plain = greedy(model, prompts)
        words = [plain[0][:1], plain[1][:2], plain[2][1:4]]
        for settings in PROCESSORS + [{"bad_words_ids": words}]:
            outputs = greedy(model, prompts, **settings)
            records.append({"model": name, "settings": settings, "sources": prompts, "outputs": outputs,
                            "changed": sum(a != b for a, b in zip(outputs, plain))})
    (root / "processors.json").write_text(json.dumps(records))


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    command, root = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        make(root)
        return 0
    if command == "stories":
        stories(root, Path(sys.argv[3]), Path(sys.argv[4]))
        return 0
    if command == "processors":
        processors(root)
        return 0
    problems = check(root, check_directory)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
