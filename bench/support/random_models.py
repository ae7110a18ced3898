"""Small random T5 and Llama directories in Hugging Face's form, written without any package."""

from __future__ import annotations

import array
import dataclasses
import json
import pathlib
import random
import struct

BUCKETS = 32
# Numbers that a parameter draws before it repeats them: drawing them all takes a minute for 100 M.
DRAWN = 1 << 20


@dataclasses.dataclass(frozen=True)
class Sizes:
    vocabulary: int
    width: int
    heads: int
    head_width: int
    ff_width: int
    layers: int
    positions: int = 512


# A parameter: its shape, and the standard deviation of its numbers; 0: all are 1.
Parameters = dict[str, tuple[tuple[int, ...], float]]


def projections(prefix: str, names: str, sizes: Sizes, query_scale: float) -> Parameters:
    """Query, key, value and output of an attention. A large output makes later tokens depend on earlier ones."""
    query, key, value, output = (f"{prefix}.{name}.weight" for name in names.split())
    inner = sizes.heads * sizes.head_width
    deviation = sizes.width ** -0.5
    return {query: ((inner, sizes.width), deviation * query_scale), key: ((inner, sizes.width), deviation),
            value: ((inner, sizes.width), deviation), output: ((sizes.width, inner), 4 * inner ** -0.5)}


def t5_stack(stack: str, sizes: Sizes) -> Parameters:
    parameters: Parameters = {f"{stack}.final_layer_norm.weight": ((sizes.width,), 0)}
    attentions = ["SelfAttention"] + (["EncDecAttention"] if stack == "decoder" else [])
    for block in range(sizes.layers):
        for number, name in enumerate(attentions):
            prefix = f"{stack}.block.{block}.layer.{number}"
            parameters |= projections(f"{prefix}.{name}", "q k v o", sizes, sizes.head_width ** -0.5)
            parameters[f"{prefix}.layer_norm.weight"] = ((sizes.width,), 0)
        prefix = f"{stack}.block.{block}.layer.{len(attentions)}"
        parameters[f"{prefix}.DenseReluDense.wi.weight"] = ((sizes.ff_width, sizes.width), sizes.width ** -0.5)
        parameters[f"{prefix}.DenseReluDense.wo.weight"] = ((sizes.width, sizes.ff_width), 4 * sizes.ff_width ** -0.5)
        parameters[f"{prefix}.layer_norm.weight"] = ((sizes.width,), 0)
    bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    parameters[bias] = ((BUCKETS, sizes.heads), 1.0)
    return parameters


def t5_parameters(sizes: Sizes) -> Parameters:
    # The head is its own: a random model whose head is its embedding repeats its last token.
    tables = {"shared.weight": ((sizes.vocabulary, sizes.width), 1.0),
              "lm_head.weight": ((sizes.vocabulary, sizes.width), 0.5)}
    return tables | t5_stack("encoder", sizes) | t5_stack("decoder", sizes)


def llama_parameters(sizes: Sizes) -> Parameters:
    table = ((sizes.vocabulary, sizes.width), 0.5)
    parameters: Parameters = {"model.embed_tokens.weight": table, "lm_head.weight": table,
                              "model.norm.weight": ((sizes.width,), 0)}
    for layer in range(sizes.layers):
        prefix = f"model.layers.{layer}"
        parameters |= projections(f"{prefix}.self_attn", "q_proj k_proj v_proj o_proj", sizes, 1.0)
        for name in ("gate_proj", "up_proj"):
            parameters[f"{prefix}.mlp.{name}.weight"] = ((sizes.ff_width, sizes.width), sizes.width ** -0.5)
        parameters[f"{prefix}.mlp.down_proj.weight"] = ((sizes.width, sizes.ff_width), sizes.ff_width ** -0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            parameters[f"{prefix}.{name}.weight"] = ((sizes.width,), 0)
    return parameters


def t5_config(sizes: Sizes) -> dict:
    return {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True,
            "vocab_size": sizes.vocabulary, "d_model": sizes.width, "d_kv": sizes.head_width, "d_ff": sizes.ff_width,
            "num_layers": sizes.layers, "num_decoder_layers": sizes.layers, "num_heads": sizes.heads,
            "relative_attention_num_buckets": BUCKETS, "relative_attention_max_distance": 128, "dropout_rate": 0.0,
            "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0, "feed_forward_proj": "relu",
            "tie_word_embeddings": False, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
            "dtype": "float32"}


def llama_config(sizes: Sizes) -> dict:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": sizes.vocabulary,
            "hidden_size": sizes.width, "intermediate_size": sizes.ff_width, "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.heads, "head_dim": sizes.head_width,
            "max_position_embeddings": sizes.positions, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
            "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "dtype": "float32"}


def write_weights(path: pathlib.Path, parameters: Parameters, seed: int) -> None:
    """Writes safetensors: the header's length, the header, and the numbers."""
    source = random.Random(seed)
    table = [source.gauss(0, 1) for _ in range(4096)]
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    pieces, offset = [], 0
    for name, (shape, deviation) in parameters.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        kept = min(count, DRAWN)
        drawn = source.choices(table, k=kept) if deviation else []
        piece = array.array("f", [deviation * number for number in drawn] if deviation else [1.0] * kept).tobytes()
        piece = (piece * -(-count // kept))[:4 * count]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(piece)]}
        pieces.append(piece)
        offset += len(piece)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def write_model(folder: pathlib.Path, family: str, sizes: Sizes, seed: int = 1) -> None:
    folder.mkdir(parents=True)
    config, parameters = {"t5": (t5_config, t5_parameters), "llama": (llama_config, llama_parameters)}[family]
    (folder / "config.json").write_text(json.dumps(config(sizes), indent=1))
    write_weights(folder / "model.safetensors", parameters(sizes), seed)
