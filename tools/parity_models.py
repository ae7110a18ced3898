#!/usr/bin/env python3
"""References for tests/parity: what Transformers computes with small random models. The other scripts use it.

parity_models.py make DIR   writes DIR/<name>/ (a model directory), DIR/<name>.reference.safetensors (a batch, its
                            logits and gradients) and DIR/<name>.greedy.json (inputs and their greedy outputs)
parity_models.py check DIR  loads every DIR/saved/<name>/ that Draftsmith wrote and compares it with the references;
                            prints one line a problem and exits 1 when there is any
parity_models.py processors DIR     writes DIR/processors.json: greedy outputs of a made model under generation settings
                                    that change logits
parity_models.py beams DIR [MODEL]  writes DIR/beams.json: outputs and scores of beam search, a record for each of
                                    SEARCHES and each of BEAM_MODELS, or for a trained directory alone
parity_models.py drafters DIR       loads every exported drafter DIR/drafters/<name>/: alone it must generate the outputs
                                    of DIR/<name>.ours.json, as assistant_model leave the target's outputs as they are,
                                    and have a model card that the Hub reads
parity_models.py kinds DIR          complains of each directory DIR/kinds/*, models of kinds of our own, that
                                    Transformers takes for a model it knows: it would fill in random weights
"""

import json
import sys
from pathlib import Path

import torch
from huggingface_hub import ModelCard
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer,
                          BloomConfig, DynamicCache, EncoderDecoderCache, Gemma2Config, Gemma3TextConfig,
                          GenerationConfig, GPT2Config, GPTNeoXConfig, GraniteConfig, LlamaConfig, MistralConfig,
                          MT5Config, Olmo2Config, OPTConfig, Phi3Config,
                          PreTrainedTokenizerFast, Qwen2Config, Qwen3Config, SmolLM3Config, T5Config)
from transformers import BartConfig, M2M100Config, MarianConfig, MBartConfig, PegasusConfig, UMT5Config
from transformers.utils import logging

NEW_TOKENS = 14
GREEDY_INPUTS = 200
FEWER_INPUTS = 50  # of models that share what they compute with others
PROCESSED = 60
ASSISTED = 40
BEAM_LENGTHS = (1, 7, 18) * 12  # of inputs
PAD, EOS = 0, 1
HALF_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PROCESSORS = [
    {"encoder_repetition_penalty": 2.0},
    {"encoder_no_repeat_ngram_size": 1},
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    {"min_length": 20},
    {"min_length": 25, "min_new_tokens": 3},
]
SEQ2SEQ_PROCESSORS = [
    {"forced_bos_token_id": 7, "forced_eos_token_id": EOS, "no_repeat_ngram_size": 3, "min_length": 6},
    {"bad_words_ids": [[PAD]], "forced_eos_token_id": EOS, "encoder_no_repeat_ngram_size": 1},
]
BEAM_MODELS = ("t5_v1_0", "mt5", "llama3", "gpt2", "bloom", "marian")
SEARCHES = [
    {"num_beams": 4, "num_return_sequences": 4},
    {"num_beams": 4, "length_penalty": 0.6, "num_return_sequences": 2},
    {"num_beams": 2, "length_penalty": 2.0, "early_stopping": True, "num_return_sequences": 2},
    {"num_beams": 5, "length_penalty": 0.0, "early_stopping": "never"},
    {"num_beams": 3, "length_penalty": 1.5, "early_stopping": "never", "num_return_sequences": 3},
    {"num_beams": 6, "length_penalty": -0.5, "num_return_sequences": 6},
    {"num_beams": 4, "num_return_sequences": 2, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2,
     "min_new_tokens": 4},
    {"num_beams": 4, "num_return_sequences": 2, "renormalize_logits": True, "bad_words_ids": [[5], [9]],
     "min_new_tokens": 4},
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


# Odd sizes everywhere: head widths that do not divide the model's, depths of encoder and decoder that differ, shared
# key heads, numbers of heads that are no power of two.
T5_IDS = dict(dropout_rate=0.0, decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=EOS)
IDS = dict(bos_token_id=2, eos_token_id=EOS, pad_token_id=PAD)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "beta_fast": 6.0, "truncate": False,
        "original_max_position_embeddings": 64}
# Of the families like Llama: four heads of 8 numbers share two of keys.
SHARED_KEYS = dict(vocab_size=91, hidden_size=32, intermediate_size=45, num_hidden_layers=3, num_attention_heads=4,
                   num_key_value_heads=2, max_position_embeddings=512, **IDS)
CONFIGURATIONS = {
    "t5_v1_0": T5Config(vocab_size=101, d_model=24, d_kv=7, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3,
                        feed_forward_proj="relu", **T5_IDS),
    "t5_v1_1": T5Config(vocab_size=97, d_model=20, d_kv=9, d_ff=33, num_layers=3, num_decoder_layers=1, num_heads=5,
                        feed_forward_proj="gated-gelu", tie_word_embeddings=False, **T5_IDS),
    "t5_tied_unscaled": T5Config(vocab_size=67, d_model=18, d_kv=5, d_ff=31, num_layers=1, num_decoder_layers=2,
                                 num_heads=3, feed_forward_proj="gated-silu", tie_word_embeddings=False,
                                 relative_attention_num_buckets=12, relative_attention_max_distance=200, **T5_IDS),
    "mt5": MT5Config(vocab_size=113, d_model=22, d_kv=6, d_ff=35, num_layers=2, num_decoder_layers=2, num_heads=5,
                     feed_forward_proj="gated-gelu", relative_attention_num_buckets=20,
                     relative_attention_max_distance=50, **T5_IDS),
    "llama3": LlamaConfig(vocab_size=101, hidden_size=24, intermediate_size=41, num_hidden_layers=3,
                          num_attention_heads=6, num_key_value_heads=2, head_dim=10, max_position_embeddings=512,
                          rope_parameters=LLAMA3, attention_bias=True, tie_word_embeddings=False, **IDS),
    "llama_linear": LlamaConfig(vocab_size=97, hidden_size=20, intermediate_size=33, num_hidden_layers=2,
                                num_attention_heads=5, num_key_value_heads=5, head_dim=4, mlp_bias=True,
                                max_position_embeddings=512, tie_word_embeddings=True,
                                rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}, **IDS),
    "llama_yarn": LlamaConfig(vocab_size=79, hidden_size=20, intermediate_size=33, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, head_dim=12, max_position_embeddings=512,
                              rope_parameters=YARN, **IDS),
    "llama_dynamic": LlamaConfig(vocab_size=73, hidden_size=20, intermediate_size=33, num_hidden_layers=2,
                                 num_attention_heads=5, head_dim=8, max_position_embeddings=300,
                                 rope_parameters={"rope_type": "dynamic", "rope_theta": 700.0, "factor": 3.3}, **IDS),
    "gpt2": GPT2Config(vocab_size=89, n_embd=24, n_head=3, n_layer=2, n_inner=37, n_positions=300, resid_pdrop=0.0,
                       embd_pdrop=0.0, attn_pdrop=0.0, **IDS),
    "gpt_neox": GPTNeoXConfig(vocab_size=103, hidden_size=40, intermediate_size=44, num_hidden_layers=3,
                              num_attention_heads=5, rotary_pct=0.5, max_position_embeddings=512, **IDS),
    "gpt_neox_serial": GPTNeoXConfig(vocab_size=83, hidden_size=24, intermediate_size=50, num_hidden_layers=2,
                                     num_attention_heads=2, rotary_pct=1.0, max_position_embeddings=512,
                                     use_parallel_residual=False, attention_bias=False, **IDS),
    "gpt_neox_yarn": GPTNeoXConfig(vocab_size=91, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                                   num_attention_heads=2, max_position_embeddings=512,
                                   rope_parameters={**YARN, "partial_rotary_factor": 0.5}, **IDS),
    "bloom": BloomConfig(vocab_size=107, hidden_size=30, n_head=5, n_layer=3, hidden_dropout=0.0,
                         attention_dropout=0.0, **IDS),
    "mistral": MistralConfig(**SHARED_KEYS, head_dim=10, sliding_window=None),
    "mistral_windows": MistralConfig(**SHARED_KEYS, head_dim=10, sliding_window=5),
    "phi3_windows": Phi3Config(**SHARED_KEYS, sliding_window=7, original_max_position_embeddings=512),
    "gemma2": Gemma2Config(**SHARED_KEYS, head_dim=10, query_pre_attn_scalar=14, sliding_window=4,
                           attn_logit_softcapping=3.0, final_logit_softcapping=8.0),
    "gemma3": Gemma3TextConfig(**SHARED_KEYS, head_dim=12, query_pre_attn_scalar=14, sliding_window=8,
                               layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                               rope_parameters={
                                   "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
    "qwen2": Qwen2Config(**SHARED_KEYS, tie_word_embeddings=True, max_window_layers=1),
    "qwen3": Qwen3Config(**SHARED_KEYS, head_dim=12, attention_bias=True),
    "smollm3": SmolLM3Config(**SHARED_KEYS, no_rope_layers=[1, 0, 0], attention_bias=True, mlp_bias=True),
    "granite": GraniteConfig(**SHARED_KEYS, embedding_multiplier=3.0, residual_multiplier=0.4,
                             attention_multiplier=0.21, logits_scaling=1.7, attention_bias=True),
    "olmo2": Olmo2Config(**SHARED_KEYS, attention_bias=True),
    "phi3": Phi3Config(**SHARED_KEYS, partial_rotary_factor=0.75, original_max_position_embeddings=512),
    "opt": OPTConfig(vocab_size=89, hidden_size=32, ffn_dim=37, num_hidden_layers=2, num_attention_heads=4,
                     max_position_embeddings=300, dropout=0.0, **IDS),
    "opt_plain": OPTConfig(vocab_size=79, hidden_size=32, ffn_dim=40, num_hidden_layers=2, num_attention_heads=2,
                           max_position_embeddings=300, dropout=0.0, enable_bias=False, tie_word_embeddings=False,
                           _remove_final_layer_norm=True, activation_function="gelu", **IDS),
}
# Of encoder-decoders with layer norms: five heads of 6 numbers, a decoder deeper than the encoder.
SIZES = dict(vocab_size=97, d_model=30, encoder_layers=2, decoder_layers=3, encoder_attention_heads=5,
             decoder_attention_heads=5, encoder_ffn_dim=44, decoder_ffn_dim=44, max_position_embeddings=300, dropout=0.0,
             attention_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, scale_embedding=True, pad_token_id=PAD,
             eos_token_id=EOS)
CONFIGURATIONS.update({
    "umt5": UMT5Config(vocab_size=109, d_model=22, d_kv=6, d_ff=35, num_layers=2, num_decoder_layers=3, num_heads=5,
                       relative_attention_num_buckets=20, relative_attention_max_distance=50, **T5_IDS),
    "marian": MarianConfig(**SIZES, activation_function="swish", decoder_start_token_id=PAD, forced_eos_token_id=None),
    "m2m_100": M2M100Config(**SIZES, decoder_start_token_id=EOS, bos_token_id=2),
    "bart": BartConfig(**{**SIZES, "scale_embedding": False}, decoder_start_token_id=EOS, bos_token_id=2,
                       forced_eos_token_id=None),
    "mbart": MBartConfig(**SIZES, activation_function="gelu_new", decoder_start_token_id=EOS, bos_token_id=2,
                         forced_eos_token_id=None),
    # Not ReLU, as M2M-100 has: of this model one unit lies so near 0 that rounding decides its gradient.
    "pegasus": PegasusConfig(**SIZES, activation_function="gelu", decoder_start_token_id=PAD, forced_eos_token_id=None),
})
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


def generate(model, inputs, new_tokens=NEW_TOKENS, **settings):
    """Outputs of each input by Transformers' own generate, best first (new tokens, EOS included), and scores of beams.
    Inputs of one length go together."""
    outputs, scores = [None] * len(inputs), [None] * len(inputs)
    settings = {"num_beams": 1, "num_return_sequences": 1, **settings}
    count = settings["num_return_sequences"]
    for length in sorted({len(one) for one in inputs}):
        chosen = [i for i, one in enumerate(inputs) if len(one) == length]
        tokens = torch.tensor([inputs[i] for i in chosen])
        extra = {}
        if model.config.is_encoder_decoder:  # 5.23 builds a cache with as many layers as the encoder has
            extra["past_key_values"] = EncoderDecoderCache(DynamicCache(), DynamicCache())
        with torch.no_grad():
            found = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new_tokens,
                                   do_sample=False, return_dict_in_generate=True,
                                   output_scores=settings["num_beams"] > 1, **settings, **extra)
        skipped = 1 if model.config.is_encoder_decoder else length
        rows = [until_eos(row, model.config.eos_token_id) for row in found.sequences[:, skipped:].tolist()]
        for place, i in enumerate(chosen):
            own = slice(place * count, (place + 1) * count)
            outputs[i] = rows[own]
            scores[i] = found.sequences_scores[own].tolist() if settings["num_beams"] > 1 else None
    return outputs, scores


def greedy(model, inputs, new_tokens=NEW_TOKENS, **settings):
    return [rows[0] for rows in generate(model, inputs, new_tokens, **settings)[0]]


def greedy_sources(vocabulary):
    generator = torch.Generator().manual_seed(9)
    lengths = torch.randint(1, 25, (GREEDY_INPUTS,), generator=generator).tolist()
    return [torch.randint(2, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def write_greedy(file, model, inputs):
    file.write_text(json.dumps({"sources": inputs, "outputs": greedy(model, inputs)}))


def make(root):
    for name, config in CONFIGURATIONS.items():
        model = make_model(name)
        model.save_pretrained(root / name)
        save_file(reference(model), root / f"{name}.reference.safetensors")
        count = GREEDY_INPUTS if config.model_type in MANY_INPUTS else FEWER_INPUTS
        write_greedy(root / f"{name}.greedy.json", model, greedy_sources(config.vocab_size)[:count])
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
    import sentencepiece

    words = ["ka", "lo", "mi", "tu", "re", "sen", "dor", "pal", "ist", "um"]
    sentences = [" ".join(words[(i * k) % 10] + words[(i + k) % 10] for k in range(1, 6)) for i in range(300)]
    (root / "text").write_text("\n".join(sentences))
    sentencepiece.SentencePieceTrainer.train(
        input=str(root / "text"), model_prefix=str(root / "spiece"), vocab_size=40, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        minloglevel=2)


def write_byte_level(directory, lines, size, **special):
    """A byte-level BPE tokenizer in Transformers' form, trained on the lines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special.values()), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(directory)
    return fast


def check_tokenizer(root, directory):
    import sentencepiece

    plain = sentencepiece.SentencePieceProcessor(model_file=str(root / "spiece.model"))
    loaded = AutoTokenizer.from_pretrained(directory)
    problems = []
    if len(loaded) != plain.vocab_size():
        problems.append(f"{directory.name}: tokenizer has {len(loaded)} ids, SentencePiece {plain.vocab_size()}")
    for text in ["kalo mitu resen", "dorpal  istum", "Unbekannt, 12"]:
        if loaded(text).input_ids != plain.encode(text) + [EOS]:
            problems.append(f"{directory.name}: {text!r} gives {loaded(text).input_ids}, not {plain.encode(text) + [EOS]}")
    return problems


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
        wrong = sum(a != b for a, b in zip(greedy(model, expected["sources"]), expected["outputs"]))
        if wrong:
            problems.append(f"{directory.name}: {wrong} of {len(expected['outputs'])} greedy outputs differ")
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


def beams(root, directory=None):
    records = []
    for name in [directory] if directory else BEAM_MODELS:
        model, _ = load_model(root / name)
        generator = torch.Generator().manual_seed(11)
        inputs = [torch.randint(2, model.config.vocab_size, (length,), generator=generator).tolist()
                  for length in BEAM_LENGTHS]
        new_tokens = 40 if directory else NEW_TOKENS
        for settings in SEARCHES:
            outputs, scores = generate(model, inputs, new_tokens, **settings)
            records.append({"model": str(name), "settings": settings, "new_tokens": new_tokens, "sources": inputs,
                            "outputs": outputs, "scores": scores})
    (root / "beams.json").write_text(json.dumps(records))


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
        target, _ = load_model(root / name)
        wanted = json.loads((root / f"{name}.greedy.json").read_text())
        ours = json.loads((root / f"{name}.ours.json").read_text())
        if ours == wanted["outputs"]:
            found.append(f"{name}: the drafter should have other outputs than its target")
        if greedy(drafter, wanted["sources"]) != ours:
            found.append(f"{name}: alone it generates other ids than Draftsmith with the same model")
        outputs = [assisted(target, drafter, source) for source in wanted["sources"][:ASSISTED]]
        wrong = sum(a != b for a, b in zip(outputs, wanted["outputs"]))
        if wrong:
            found.append(f"{name}: {wrong} of {ASSISTED} outputs differ with it as assistant_model")
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
    run(make, check_directory, processors=processors, beams=beams, drafters=drafters, kinds=kinds)
