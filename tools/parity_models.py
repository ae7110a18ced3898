#!/usr/bin/env python3
"""References for tests/parity: what Transformers computes with the small models of parity_configurations.py, their
weights random. The other scripts use it.

parity_models.py make DIR   writes DIR/<name>/ (a model directory), DIR/<name>.reference.safetensors (a batch, its
                            logits and gradients) and DIR/<name>.greedy.json (inputs and their greedy outputs)
parity_models.py check DIR  loads every DIR/saved/<name>/ that Draftsmith wrote and compares it with the references;
                            prints one line a problem and exits 1 when there is any
parity_models.py processors DIR     writes DIR/processors.json: greedy outputs under settings that change logits
parity_models.py drafters DIR       loads every exported drafter DIR/drafters/<name>/: alone it must generate the outputs
                                    of DIR/<name>.ours.json, as assistant_model leave the target's outputs as they are,
                                    and have a model card that the Hub reads
parity_models.py kinds DIR          complains of each DIR/kinds/*, a kind of our own, that Transformers loads
"""

import json
import sys
from pathlib import Path

import sentencepiece
import torch
from huggingface_hub import ModelCard
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer,
                          DynamicCache, EncoderDecoderCache, GenerationConfig, PreTrainedTokenizerFast)
from transformers.utils import logging

from parity_configurations import CONFIGURATIONS, EOS, PAD
from parity_tokenizers import PADDING_FIRST, byte_level, trained, trained_model

NEW_TOKENS = 14
GREEDY_INPUTS = 200
FEWER_INPUTS = 50  # of models that share what they compute with others
PROCESSED = 60
ASSISTED = 40
HALF_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PROCESSORS = [
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    {"min_length": 20},
    {"min_length": 25, "min_new_tokens": 3},
]
SEQ2SEQ_PROCESSORS = [
    {"forced_bos_token_id": 7, "forced_eos_token_id": EOS, "no_repeat_ngram_size": 3, "min_length": 6},
    {"bad_words_ids": [[PAD]], "forced_eos_token_id": EOS},
]


def run(make, check_one=None, **commands):
    """Does what the command line says: COMMAND DIR REST. `check` calls check_one(DIR, directory) for DIR/saved/*."""
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    if len(sys.argv) < 3 or sys.argv[1] not in {"make", "check", *commands}:
        sys.exit(sys.modules["__main__"].__doc__)
    root = Path(sys.argv[2])
    problems = []
    if sys.argv[1] == "check":
        directories = sorted(path for path in (root / "saved").iterdir() if path.is_dir())
        problems = [problem for directory in directories for problem in check_one(root, directory)]
        problems += [] if directories else ["nothing was saved"]
    else:
        problems = {"make": make, **commands}[sys.argv[1]](root, *map(Path, sys.argv[3:])) or []
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


MANY_INPUTS = ("t5", "mt5", "llama", "gpt2", "gpt_neox", "bloom")  # model types with all of GREEDY_INPUTS
UNTIED = ("t5_v1_1", "mt5", "umt5", "t5")  # whose heads are their own


def class_of(config):
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def make_model(name, config=None):
    """A model of CONFIGURATIONS, or of another one: weights large enough that every part shows in the logits."""
    config = config or CONFIGURATIONS[name]
    torch.manual_seed(sum(name.encode()))
    model = class_of(config).from_config(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.requires_grad:  # Marian's and Pegasus's sinusoids are frozen
                varied = vary_t5 if "t5" in config.model_type else vary_seq2seq if config.is_encoder_decoder else vary
                varied(name, parameter_name, parameter)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.3)
        if name in UNTIED:
            model.lm_head.weight = torch.nn.Parameter(torch.randn(config.vocab_size, config.d_model) * 0.5)
        if name != "m2m_100":  # which ends soon enough
            model.get_output_embeddings().weight[EOS] *= 2  # so that some rows end before the limit
    return model


def vary_t5(model_name, name, parameter):
    if "layer_norm" in name:  # ones by default, which would hide a norm that is not applied
        parameter.uniform_(0.5, 1.5)
    if "relative_attention_bias" in name:  # too small by default to be seen in the logits
        parameter.normal_(std=1.0)
    if ".k." in name:
        parameter.mul_(1.5)
    if model_name not in UNTIED and (".o." in name or ".wo." in name):
        parameter.mul_(4)  # else a tied model only repeats its last token


def vary(_, name, parameter):
    if parameter.dim() > 1:
        parameter.normal_(std=1.2 / parameter.shape[1] ** 0.5)
    elif name.endswith("bias"):
        parameter.normal_(std=0.2)
    else:
        parameter.uniform_(0.5, 1.5)


def vary_seq2seq(model_name, name, parameter):
    vary(model_name, name, parameter)
    if name.endswith("layer_norm.weight"):
        parameter.mul_(torch.randn(parameter.shape).sign())  # else a tied model only repeats its last token
    if name.endswith(("shared.weight", "out_proj.weight", "fc2.weight", "embed_positions.weight")):
        parameter.mul_(2)
    if name.endswith("q_proj.weight"):
        parameter.mul_(3)
    if name.endswith("bias"):  # large ones would give every position the same token
        parameter.mul_(0.2)


def load_model(directory):
    """A directory's model, and the complaints of Transformers about it."""
    model, info = class_of(AutoConfig.from_pretrained(directory)).from_pretrained(directory, output_loading_info=True)
    return model.eval(), [f"{directory.name}: {kind} {sorted(map(str, info[kind]))}"
                          for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[kind]]


def ragged(lengths, vocabulary, generator):
    """Random rows, right padded, with their mask."""
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    mask = torch.zeros_like(tokens)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(2, vocabulary, (length,), generator=generator)
        mask[row, :length] = 1
    return tokens, mask


def logits_of(model, tensors):
    """Logits of a batch: of the targets after the sources, or of whole sequences."""
    masks = {name: (torch.arange(tensors[name].shape[1])[None, :] < tensors[f"{name}_lengths"][:, None]).long()
             for name in ("source", "target") if name in tensors}
    if model.config.is_encoder_decoder:
        return model(input_ids=tensors["source"].long(), attention_mask=masks["source"],
                     decoder_input_ids=tensors["target"].long()).logits
    return model(input_ids=tensors["target"].long(), attention_mask=masks["target"]).logits


def reference(model):
    """Logits of a batch that reaches beyond every bucket distance, and the gradients of its mean cross entropy."""
    generator = torch.Generator().manual_seed(5)
    vocabulary = model.config.vocab_size
    tensors = {}
    if model.config.is_encoder_decoder:
        tensors["source"], mask = ragged([150, 97, 1], vocabulary, generator)
        tensors["source_lengths"] = mask.sum(1)
    tensors["target"], mask = ragged([260, 60, 5], vocabulary, generator)
    tensors["target_lengths"] = mask.sum(1)
    if model.config.is_encoder_decoder:
        tensors["target"][:, 0] = model.config.decoder_start_token_id
    labels = ragged([260, 60, 5], vocabulary, generator)[0].masked_fill(mask == 0, -100)
    logits = logits_of(model, tensors)
    loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    model.zero_grad()
    loss.backward()
    tensors.update(labels=labels, logits=logits.detach(), loss=loss.detach())
    tensors.update({"grad/" + name: parameter.grad for name, parameter in model.named_parameters()
                    if parameter.requires_grad})
    return {name: tensor.float().contiguous() for name, tensor in tensors.items()}


def until_eos(row, eos=EOS):
    return row[:row.index(eos) + 1] if eos in row else row


def greedy(model, inputs, new_tokens=NEW_TOKENS, **settings):
    """Greedy outputs of each input by Transformers' own generate (new tokens, EOS included). Inputs of one length go
    together."""
    outputs = [None] * len(inputs)
    for length in sorted({len(one) for one in inputs}):
        chosen = [i for i, one in enumerate(inputs) if len(one) == length]
        tokens = torch.tensor([inputs[i] for i in chosen])
        extra = {}
        if model.config.is_encoder_decoder:  # 5.23 builds a cache with as many layers as the encoder has
            extra["past_key_values"] = EncoderDecoderCache(DynamicCache(), DynamicCache())
        with torch.no_grad():
            found = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new_tokens,
                                   do_sample=False, num_beams=1, return_dict_in_generate=True, **settings, **extra)
        skipped = 1 if model.config.is_encoder_decoder else length
        rows = [until_eos(row, model.config.eos_token_id) for row in found.sequences[:, skipped:].tolist()]
        for place, i in enumerate(chosen):
            outputs[i] = rows[place]
    return outputs


def differing(ours, theirs, what):
    """A problem if outputs differ."""
    wrong = [f"{found} from {wanted}" for wanted, found in zip(ours, theirs) if found != wanted]
    return [f"{what}: {len(wrong)} of {len(ours)} outputs differ, the first {wrong[0]}"] if wrong else []


def random_inputs(vocabulary, lengths, generator):
    return [torch.randint(2, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def greedy_sources(vocabulary):
    generator = torch.Generator().manual_seed(9)
    lengths = torch.randint(1, 25, (GREEDY_INPUTS,), generator=generator).tolist()
    return random_inputs(vocabulary, lengths, generator)


def make(root):
    for name, config in CONFIGURATIONS.items():
        model = make_model(name)
        model.save_pretrained(root / name)
        save_file(reference(model), root / f"{name}.reference.safetensors")
        count = GREEDY_INPUTS if config.model_type in MANY_INPUTS else FEWER_INPUTS
        inputs = greedy_sources(config.vocab_size)[:count]
        (root / f"{name}.greedy.json").write_text(json.dumps({"sources": inputs, "outputs": greedy(model, inputs)}))
        if name == "t5_v1_0":
            write_half_precision(root, model)
        if name == "gpt2":  # the directory form of before safetensors
            config.save_pretrained(root / "gpt2_pickled")
            torch.save(model.state_dict(), root / "gpt2_pickled/pytorch_model.bin")
    write_tokenizer(root)


def write_half_precision(root, model):
    """t5_v1_0 as bf16 and fp16 directories; the references are of the rounded weights, computed in fp32."""
    for name, dtype in HALF_TYPES.items():
        rounded = type(model)(model.config).eval()
        rounded.load_state_dict({key: value.to(dtype).float() for key, value in model.state_dict().items()})
        save_file(reference(rounded), root / f"t5_{name}.reference.safetensors")
        rounded.to(dtype).save_pretrained(root / f"t5_{name}")


def write_tokenizer(root):
    words = ["ka", "lo", "mi", "tu", "re", "sen", "dor", "pal", "ist", "um"]
    sentences = [" ".join(words[(i * k) % 10] + words[(i + k) % 10] for k in range(1, 6)) for i in range(300)]
    trained_model(root / "spiece.model", sentences, "unigram", 40, **PADDING_FIRST)


def write_byte_level(directory, lines, size, **special):
    """A byte-level BPE tokenizer in Transformers' form, trained on the lines."""
    tokenizer = trained(lines, byte_level(), special=special.values(), size=size)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(directory)
    return fast


def check_tokenizer(root, directory):
    plain = sentencepiece.SentencePieceProcessor(model_file=str(root / "spiece.model"))
    loaded = AutoTokenizer.from_pretrained(directory)
    end = [EOS] if (directory / "spiece.model").exists() else []
    wanted, found = [plain.vocab_size()], [len(loaded)]
    for text in ["kalo mitu resen", "dorpal  istum", "Unbekannt, 12", " ｋａlo\tmi\u3000", ""]:
        ids = plain.encode(text)
        wanted.append((ids + end, plain.decode(ids)))
        found.append((loaded(text).input_ids, wanted[-1][1] if plain.unk_id() in ids else loaded.decode(ids)))
    return [] if found == wanted else [f"{directory.name}: ids and texts {found}, not {wanted}"]


def check_directory(root, directory):
    base, _, precision = directory.name.partition("-")
    model, problems = load_model(directory)
    stored = HALF_TYPES.get(precision, torch.float32)
    if model.get_input_embeddings().weight.dtype != stored:
        problems.append(f"{directory.name}: loaded as {model.get_input_embeddings().weight.dtype}, not {stored}")
    if [type(model).__name__] != AutoConfig.from_pretrained(root / base).architectures:
        problems.append(f"{directory.name}: loaded as {type(model).__name__}")
    wanted = load_file(root / f"{base}.reference.safetensors")
    with torch.no_grad():
        logits = logits_of(model.float(), wanted)
    valid = torch.arange(logits.shape[1])[None, :] < wanted["target_lengths"][:, None]
    difference = (logits - wanted["logits"])[valid].abs().max() / wanted["logits"][valid].abs().max()
    if difference > (0.05 if precision else 1e-4):
        problems.append(f"{directory.name}: logits differ by {difference:.2e}")
    if not precision:
        expected = json.loads((root / f"{base}.greedy.json").read_text())
        problems += differing(expected["outputs"], greedy(model, expected["sources"]), directory.name)
    if (directory / "spiece.model").exists():
        problems += check_tokenizer(root, directory)
    return problems


def processors(root):
    """Outputs of two models under settings of their lists, and with words banned that they write without."""
    records = []
    for name, chosen in (("llama3", PROCESSORS), ("mbart", SEQ2SEQ_PROCESSORS)):
        model, _ = load_model(root / name)
        prompts = greedy_sources(model.config.vocab_size)[:PROCESSED]
        plain = greedy(model, prompts)
        words = [plain[0][:1], plain[1][:2], plain[2][1:4]]
        for settings in chosen + [{"bad_words_ids": words}]:
            outputs = greedy(model, prompts, **settings)
            records.append({"model": name, "settings": settings, "sources": prompts, "outputs": outputs,
                            "changed": sum(a != b for a, b in zip(outputs, plain))})
    (root / "processors.json").write_text(json.dumps(records))


def assisted(target, drafter, source):
    """Greedy output with an assistant, new tokens only, EOS included."""
    tokens = torch.tensor([source])
    generated = target.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), assistant_model=drafter,
                                max_new_tokens=NEW_TOKENS, do_sample=False)[0].tolist()
    return until_eos(generated[1 if target.config.is_encoder_decoder else tokens.shape[1]:])


def drafters(root):
    problems = []
    for directory in (root / "drafters").iterdir():
        name = directory.name
        drafter, found = load_model(directory)
        found += check_tokenizer(root, directory)
        target, _ = load_model(root / name)
        wanted = json.loads((root / f"{name}.greedy.json").read_text())
        ours = json.loads((root / f"{name}.ours.json").read_text())
        if ours == wanted["outputs"]:
            found.append(f"{name}: the drafter should have other outputs than its target")
        if greedy(drafter, wanted["sources"]) != ours:
            found.append(f"{name}: alone it generates other ids than Draftsmith with the same model")
        outputs = [assisted(target, drafter, source) for source in wanted["sources"][:ASSISTED]]
        found += differing(wanted["outputs"][:ASSISTED], outputs, f"{name}, as assistant_model")
        card = ModelCard.load(directory / "README.md").data
        if card.library_name != "transformers" or "speculative-decoding" not in card.tags:
            found.append(f"{name}: the card's library is {card.library_name}, its tags are {card.tags}")
        settings, targets = (GenerationConfig.from_pretrained(folder) for folder in (directory, root / name))
        # A decoder's first token is in its prompt, and Transformers asks no setting for it.
        keys = ["eos_token_id", "pad_token_id", "bos_token_id"]
        keys += ["decoder_start_token_id"] * target.config.is_encoder_decoder
        found += [f"{name}: generation_config.json has {key} {getattr(settings, key)}" for key in keys
                  if getattr(settings, key) != getattr(targets, key)]
        with safe_open(directory / "model.safetensors", "pt") as weights:
            if weights.metadata() != {"format": "pt"}:
                found.append(f"{name}: the weights' metadata is {weights.metadata()}")
        problems += found
    return problems


def kinds(root):
    """Problems: classes that load a directory, or fail otherwise than by not knowing it."""
    problems = []
    for directory in (root / "kinds").iterdir():
        for loader in (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM):
            try:
                loader.from_pretrained(directory)
                problems.append(f"{directory.name}: {loader.__name__} loads it")
            except ValueError as error:
                if "does not recognize this architecture" not in str(error):
                    problems.append(f"{directory.name}: {loader.__name__}: {error}")
    return problems


if __name__ == "__main__":
    run(make, check_directory, processors=processors, drafters=drafters, kinds=kinds)
