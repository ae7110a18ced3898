#!/usr/bin/env python3
"""References for tests/parity: exported models in engines that serve them.

parity_engines.py make DIR   writes DIR/<name>/, a model directory with a tokenizer for each of T5, GPT-NeoX and the
                             families of GGUF, and DIR/<name>.greedy.json with inputs of token ids
parity_engines.py check DIR  CTranslate2's converter takes the exports DIR/saved/<name>/ of CTRANSLATE2, whose greedy
                             outputs must be those of DIR/<name>.ours.json. DIR/gguf/<name>.<type>.gguf must hold the
                             weights of the export, rounded as the `gguf` package rounds them, and the outputs of
                             llama.cpp (xllamacpp) must be ours. Prints one line a problem and exits 1 when there is any
parity_engines.py quantise DIR  writes DIR/<name>_<type>.gguf in blocks that the `gguf` package makes
"""

import json
import random
import urllib.request

import ctranslate2
import gguf
import numpy
import xllamacpp
from ctranslate2.converters import TransformersConverter
from safetensors.torch import load_file
from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM

from parity_configurations import EOS, PAD, config, decoder, t5
from parity_models import NEW_TOKENS, differing, greedy_sources, make_model, run, write_byte_level
from parity_tokenizers import configured, trained_model

# CTranslate2 4.8.5 knows GPT-NeoX under the names of Transformers 4 alone.
GPTNeoXForCausalLM.embed_out = property(lambda model: model.lm_head)
GPTNeoXConfig.rotary_pct = property(lambda config: config.rope_parameters["partial_rotary_factor"])
GPTNeoXConfig.rotary_emb_base = property(lambda config: config.rope_parameters["rope_theta"])

INPUTS = 30
PIECES = 320
SENTINELS = 100
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
# An attention head of CTranslate2 must have a width that is a multiple of 8.
POSITIONS = dict(max_position_embeddings=256, bos_token_id=3)
SIZES = dict(vocabulary=PIECES, width=32, ff_width=64, layers=5, heads=4, num_key_value_heads=2, **POSITIONS)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 6.0,
        "original_max_position_embeddings": 16}
CTRANSLATE2 = ("t5", "llama", "gpt2", "gpt_neox")
PAIRED = ("llama", "mistral", "granite", "smollm3")  # llama.cpp rotates neighbouring numbers
CONFIGURATIONS = {
    "t5": t5("t5", PIECES + SENTINELS, 32, 8, 48, 2, 2, 3, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "llama": decoder("llama", **SIZES, tie_word_embeddings=False),
    "mistral": decoder("mistral", **SIZES, head_dim=10, sliding_window=None),
    "granite": decoder("granite", **SIZES, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.21,
                       logits_scaling=1.7, attention_bias=True, mlp_bias=True),
    "smollm3": decoder("smollm3", **SIZES, tie_word_embeddings=True),
    "qwen2": decoder("qwen2", **SIZES, rope_parameters=YARN),
    "qwen3": decoder("qwen3", **SIZES, head_dim=12, tie_word_embeddings=True),
    "olmo2": decoder("olmo2", **SIZES, tie_word_embeddings=True),
    # Under another name than Phi-3: by that, llama.cpp would ask for tokens that Microsoft's have.
    "phi": decoder("phi3", **SIZES, partial_rotary_factor=0.75, original_max_position_embeddings=256),
    "gpt2": config("gpt2", vocab_size=PIECES, n_embd=32, n_head=4, n_layer=3, n_positions=256, bos_token_id=3,
                   eos_token_id=EOS, pad_token_id=PAD),
    "gpt_neox": decoder("gpt_neox", PIECES, 32, 64, 3, 4, rotary_pct=0.5, **POSITIONS),
}


def text():
    """Lines of made words, varied enough for some hundred pieces."""
    generator = random.Random(3)
    syllables = [a + b for a in "bdfghklmnprstvz" for b in ("a", "e", "i", "o", "un", "or")]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 3))) for _ in range(400)]
    return [" ".join(generator.choices(words, k=generator.randint(4, 12))) for _ in range(800)]


def write_sentencepiece(directory, name):
    """spiece.model (unigram) of a T5, tokenizer.model (bpe with bytes) of a Llama."""
    ids = dict(pad_id=PAD, eos_id=EOS, unk_id=2, bos_id=3)
    tokens = dict(eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    if name == "t5":
        trained_model(directory / "spiece.model", text(), "unigram", PIECES, **ids)
        configured(directory, tokenizer_class="T5Tokenizer", extra_ids=SENTINELS, **tokens)
    else:
        trained_model(directory / "tokenizer.model", text(), "bpe", PIECES, byte_fallback=True, **ids)
        configured(directory, tokenizer_class="LlamaTokenizer", bos_token="<s>", add_bos_token=True, **tokens)


def make(root):
    for name, config in CONFIGURATIONS.items():
        directory = root / name
        make_model(name, config).save_pretrained(directory)
        if name in ("t5", "llama"):
            write_sentencepiece(directory, name)
        else:
            write_byte_level(directory, text(), PIECES, pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
                             bos_token="<s>")
        (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
        # Ids that have a piece of their own.
        sources = [[4 + token % (PIECES - 4) for token in source] for source in greedy_sources(PIECES)[:INPUTS]]
        (root / f"{name}.greedy.json").write_text(json.dumps({"sources": sources, "outputs": [[]] * INPUTS}))


def ctranslate2_outputs(name, directory, sources, work):
    """Greedy outputs of the converted model: new tokens only, EOS included."""
    TransformersConverter(str(directory)).convert(str(work), force=True)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    rows = [tokenizer.convert_ids_to_tokens(source) for source in sources]
    options = dict(beam_size=1, return_end_token=True)
    if name == "t5":
        results = ctranslate2.Translator(str(work), intra_threads=1).translate_batch(
            rows, max_decoding_length=NEW_TOKENS, **options)
        tokens = [result.hypotheses[0] for result in results]
    else:
        # One by one: of prompts that differ in length, results repeat what is behind the shortest one's length.
        generator = ctranslate2.Generator(str(work), intra_threads=1)
        results = [generator.generate_batch([row], max_length=NEW_TOKENS, include_prompt_in_result=False, **options)[0]
                   for row in rows]
        tokens = [result.sequences[0] for result in results]
    return [tokenizer.convert_tokens_to_ids(row) for row in tokens]


def quantise(root):
    for name, kind in (("llama", "Q4_0"), ("llama", "Q8_0"), ("qwen3", "Q5_1")):
        (root / f"{name}_{kind}.greedy.json").write_text((root / f"{name}.greedy.json").read_text())
        reader = gguf.GGUFReader(root / "gguf" / f"{name}.stored.gguf")
        writer = gguf.GGUFWriter(root / f"{name}_{kind}.gguf", name)
        for key, field in list(reader.fields.items())[4:]:  # behind the counts and the architecture
            writer.add_key_value(key, field.contents(), field.types[0], *field.types[1:2])
        for tensor in reader.tensors:
            blocks = len(tensor.shape) > 1 and tensor.shape[0] % 32 == 0
            type_ = gguf.GGMLQuantizationType[kind if blocks else "F32"]
            writer.add_tensor(tensor.name, gguf.quants.quantize(tensor.data, type_), raw_dtype=type_)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


def check_ctranslate2(root, directory):
    name = directory.name
    sources = json.loads((root / f"{name}.greedy.json").read_text())["sources"]
    ours = json.loads((root / f"{name}.ours.json").read_text())
    if len({tuple(row) for row in ours}) < INPUTS // 2:
        return [f"{name}: outputs that repeat test nothing"]
    return differing(ours, ctranslate2_outputs(name, directory, sources, root / "ct2" / name), f"{name}, CTranslate2")


def split_heads(weight, heads):
    """Rows in Transformers' order from llama.cpp's, which has a head's pairs side by side."""
    rest = weight.shape[1:]
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, *rest).swapaxes(1, 2).reshape(weight.shape)


def check_gguf(root, file):
    """Compares a file with the export that it was made of, as the gguf package names, rounds and orders weights."""
    name = file.name.split(".")[0]
    family = name.split("_Q")[0]
    config = CONFIGURATIONS[family]
    arch = gguf.MODEL_ARCH[{"mistral": "LLAMA", "phi": "PHI3"}.get(family, family.upper())]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    weights = {names.get_name(name, (".weight", ".bias")): value.numpy().T if "transformer.h." in name else value.numpy()
               for name, value in load_file(root / "saved" / name / "model.safetensors").items()}
    if config.tie_word_embeddings:
        weights.pop("output.weight", None)
    if family == "olmo2":
        weights["output.weight"] = weights["token_embd.weight"]  # llama.cpp wants it
    reader = gguf.GGUFReader(file)
    problems = []
    for tensor in reader.tensors:
        wanted = numpy.ascontiguousarray(weights.pop(tensor.name))
        expected = gguf.quants.dequantize(gguf.quants.quantize(wanted, tensor.tensor_type), tensor.tensor_type)
        found = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(wanted.shape)
        if family in PAIRED and ".attn_q." in tensor.name:
            found = split_heads(found, config.num_attention_heads)
        if family in PAIRED and ".attn_k." in tensor.name:
            found = split_heads(found, config.num_key_value_heads)
        if not numpy.array_equal(found, expected):
            problems.append(f"{file.name}: {tensor.name} differs from the gguf package's")
    problems += [f"{file.name}: {name} is missing" for name in weights]
    return problems + check_gguf_tokens(family, file.name, reader, root / family)


def check_gguf_tokens(family, name, reader, directory):
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    wanted = AutoTokenizer.from_pretrained(directory).convert_ids_to_tokens(list(range(PIECES)))
    wrong = [i for i in range(PIECES) if tokens[i] != wanted[i]]
    problems = [f"{name}: token {wrong[0]} is {tokens[wrong[0]]!r}, not {wanted[wrong[0]]!r}"] if wrong else []
    if reader.fields["tokenizer.ggml.model"].contents() != ("llama" if family == "llama" else "gpt2"):
        problems.append(f"{name}: the tokenizer is of another kind")
    if reader.fields["tokenizer.ggml.eos_token_id"].contents() != EOS:
        problems.append(f"{name}: EOS has another id")
    if reader.fields["tokenizer.chat_template"].contents() != CHAT_TEMPLATE:
        problems.append(f"{name}: the chat template is another one")
    return problems


def check_llama_cpp(root, name):
    """Greedy outputs of llama.cpp, in fp32 and without its fused attention, which rounds to fp16."""
    options = xllamacpp.CommonParams()
    options.model.path = str(root / "gguf" / f"{name}.stored.gguf")
    options.n_ctx, options.n_parallel, options.port, options.verbosity = 256, 1, 0, 0
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(options)
    outputs = []
    for source in json.loads((root / f"{name}.greedy.json").read_text())["sources"]:
        body = {"prompt": source, "n_predict": NEW_TOKENS, "temperature": 0, "return_tokens": True}
        request = urllib.request.Request(server.listening_address + "/completion", json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            outputs.append(json.load(answer)["tokens"])
    return differing(json.loads((root / f"{name}.ours.json").read_text()), outputs, f"{name}, llama.cpp")


def check(root, directory):
    """Problems of one export for CTranslate2, and of the GGUF files of the same model."""
    name = directory.name
    files = sorted((root / "gguf").glob(f"{name}.*"))
    problems = check_ctranslate2(root, directory) if name in CTRANSLATE2 else []
    problems += [found for file in files for found in check_gguf(root, file)]
    problems += check_llama_cpp(root, name) if files else []
    return problems + ([] if files or name in ("t5", "gpt_neox") else [f"{name}: no GGUF files"])


if __name__ == "__main__":
    run(make, check, quantise=quantise)
