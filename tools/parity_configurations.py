"""Small models of every family, for parity_models.py: odd sizes everywhere. Head widths do not divide the model's,
depths of encoder and decoder differ, key heads are shared, numbers of heads are no power of two."""

from transformers import AutoConfig

PAD, EOS = 0, 1
IDS = dict(bos_token_id=2, eos_token_id=EOS, pad_token_id=PAD)
config = AutoConfig.for_model  # of a model type


def t5(kind, vocabulary, width, head_width, ff_width, layers, decoder_layers, heads, **more):
    return config(kind, vocab_size=vocabulary, d_model=width, d_kv=head_width, d_ff=ff_width, num_layers=layers,
                  num_decoder_layers=decoder_layers, num_heads=heads, dropout_rate=0.0, decoder_start_token_id=PAD,
                  pad_token_id=PAD, eos_token_id=EOS, **more)


def decoder(kind, vocabulary, width, ff_width, layers, heads, **more):
    return config(kind, vocab_size=vocabulary, hidden_size=width, intermediate_size=ff_width, num_hidden_layers=layers,
                  num_attention_heads=heads, **{"max_position_embeddings": 512, **IDS, **more})


def opt(vocabulary, ff_width, heads, **more):
    return config("opt", vocab_size=vocabulary, hidden_size=32, ffn_dim=ff_width, num_hidden_layers=2,
                  num_attention_heads=heads, max_position_embeddings=300, dropout=0.0, **IDS, **more)


def seq2seq(kind, **more):
    """An encoder-decoder with layer norms: five heads of 6 numbers, a decoder deeper than the encoder."""
    return config(kind, vocab_size=97, d_model=30, encoder_layers=2, decoder_layers=3, encoder_attention_heads=5,
                  decoder_attention_heads=5, encoder_ffn_dim=44, decoder_ffn_dim=44, max_position_embeddings=300,
                  dropout=0.0, attention_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, pad_token_id=PAD,
                  eos_token_id=EOS, **{"scale_embedding": True, **more})


# Of the families like Llama: four heads of 8 numbers share two of keys.
SHARED_KEYS = dict(vocabulary=91, width=32, ff_width=45, layers=3, heads=4, num_key_value_heads=2)
FROM_EOS = dict(decoder_start_token_id=EOS, bos_token_id=2)
UNFORCED = dict(forced_eos_token_id=None)
DISTANCES = dict(relative_attention_num_buckets=20, relative_attention_max_distance=50)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 700.0, "factor": 3.3}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "beta_fast": 6.0, "truncate": False,
        "original_max_position_embeddings": 64}

CONFIGURATIONS = {
    "t5_v1_0": t5("t5", 101, 24, 7, 40, 2, 3, 3, feed_forward_proj="relu"),
    "t5_v1_1": t5("t5", 97, 20, 9, 33, 3, 1, 5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "t5_tied_unscaled": t5("t5", 67, 18, 5, 31, 1, 2, 3, feed_forward_proj="gated-silu", tie_word_embeddings=False,
                           relative_attention_num_buckets=12, relative_attention_max_distance=200),
    "mt5": t5("mt5", 113, 22, 6, 35, 2, 2, 5, feed_forward_proj="gated-gelu", **DISTANCES),
    "umt5": t5("umt5", 109, 22, 6, 35, 2, 3, 5, **DISTANCES),
    "llama3": decoder("llama", 101, 24, 41, 3, 6, num_key_value_heads=2, head_dim=10, rope_parameters=LLAMA3,
                      attention_bias=True, tie_word_embeddings=False),
    "llama_linear": decoder("llama", 97, 20, 33, 2, 5, num_key_value_heads=5, head_dim=4, rope_parameters=LINEAR,
                            mlp_bias=True, tie_word_embeddings=True),
    "llama_yarn": decoder("llama", 79, 20, 33, 2, 4, num_key_value_heads=2, head_dim=12, rope_parameters=YARN),
    "llama_dynamic": decoder("llama", 73, 20, 33, 2, 5, head_dim=8, max_position_embeddings=300,
                             rope_parameters=DYNAMIC),
    "gpt2": config("gpt2", vocab_size=89, n_embd=24, n_head=3, n_layer=2, n_inner=37, n_positions=300, resid_pdrop=0.0,
                   embd_pdrop=0.0, attn_pdrop=0.0, **IDS),
    "gpt_neox": decoder("gpt_neox", 103, 40, 44, 3, 5, rotary_pct=0.5),
    "gpt_neox_serial": decoder("gpt_neox", 83, 24, 50, 2, 2, rotary_pct=1.0, use_parallel_residual=False,
                               attention_bias=False),
    "gpt_neox_yarn": decoder("gpt_neox", 91, 32, 44, 2, 2, rope_parameters={**YARN, "partial_rotary_factor": 0.5}),
    "bloom": config("bloom", vocab_size=107, hidden_size=30, n_head=5, n_layer=3, hidden_dropout=0.0,
                    attention_dropout=0.0, **IDS),
    "mistral": decoder("mistral", **SHARED_KEYS, head_dim=10, sliding_window=None),
    "mistral_windows": decoder("mistral", **SHARED_KEYS, head_dim=10, sliding_window=5),
    "phi3_windows": decoder("phi3", **SHARED_KEYS, sliding_window=7, original_max_position_embeddings=512),
    "gemma2": decoder("gemma2", **SHARED_KEYS, head_dim=10, query_pre_attn_scalar=14, sliding_window=4,
                      attn_logit_softcapping=3.0, final_logit_softcapping=8.0),
    "gemma3": decoder("gemma3_text", **SHARED_KEYS, head_dim=12, query_pre_attn_scalar=14, sliding_window=8,
                      layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                      rope_parameters={
                          "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
    "qwen2": decoder("qwen2", **SHARED_KEYS, tie_word_embeddings=True, max_window_layers=1),
    "qwen3": decoder("qwen3", **SHARED_KEYS, head_dim=12, attention_bias=True),
    "smollm3": decoder("smollm3", **SHARED_KEYS, no_rope_layers=[1, 0, 0], attention_bias=True, mlp_bias=True),
    "granite": decoder("granite", **SHARED_KEYS, embedding_multiplier=3.0, residual_multiplier=0.4,
                       attention_multiplier=0.21, logits_scaling=1.7, attention_bias=True),
    "olmo2": decoder("olmo2", **SHARED_KEYS, attention_bias=True),
    "phi3": decoder("phi3", **SHARED_KEYS, partial_rotary_factor=0.75, original_max_position_embeddings=512),
    "opt": opt(89, 37, 4),
    "opt_plain": opt(79, 40, 2, enable_bias=False, tie_word_embeddings=False, _remove_final_layer_norm=True,
                     activation_function="gelu"),
    "marian": seq2seq("marian", activation_function="swish", decoder_start_token_id=PAD, **UNFORCED),
    "m2m_100": seq2seq("m2m_100", **FROM_EOS),
    "bart": seq2seq("bart", scale_embedding=False, **FROM_EOS, **UNFORCED),
    "mbart": seq2seq("mbart", activation_function="gelu_new", **FROM_EOS, **UNFORCED),
    # Not ReLU, as M2M-100 has: of this model one unit lies so near 0 that rounding decides its gradient.
    "pegasus": seq2seq("pegasus", activation_function="gelu", decoder_start_token_id=PAD, **UNFORCED),
}
