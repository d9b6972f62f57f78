"""Decoders whose layers are attention and one dense MLP, tiny."""

from zoo_fields import SLIDING, Maker, decoder, llama_like, wide

GEMMA = {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
SHARED_KV = {  # the last two of four layers see the keys and values of the first two
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "hidden_size_per_layer_input": 4,
    "vocab_size_per_layer_input": 97,
}
LONGER = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 2.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
GPT = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64}

DECODERS: dict[str, Maker] = {
    "gemma": wide("Gemma"),
    "gemma3_text": wide("Gemma3Text", query_pre_attn_scalar=8, **SLIDING),
    "gemma3n_text": wide(
        "Gemma3nText", laurel_rank=4, altup_num_inputs=2, activation_sparsity_pattern=[0.5, 0.0] * 2, **SHARED_KV
    ),
    "gemma4_text": wide("Gemma4Text", global_head_dim=12, use_double_wide_mlp=True, **SHARED_KV),
    "gemma4_unified_text": wide(
        "Gemma4UnifiedText",
        global_head_dim=12,
        **{field: value for field, value in SHARED_KV.items() if "per_layer" not in field},
    ),
    "vaultgemma": wide("VaultGemma", **GEMMA, **SLIDING),
    "phi3": wide("Phi3", sliding_window=5),
    "olmo": wide("Olmo", clip_qkv=1.5),
    "olmo2": wide("Olmo2"),
    "olmo3": wide("Olmo3", **SLIDING),
    "granite": wide(
        "Granite", attention_multiplier=0.3, embedding_multiplier=1.5, residual_multiplier=0.7, logits_scaling=2.0
    ),
    "granite_swa": wide("GraniteSWA", attention_multiplier=0.3, **SLIDING),
    "smollm3": wide("SmolLM3", no_rope_layers=[1, 0], use_sliding_window=True, sliding_window=5),
    "glm": wide("Glm"),
    "glm4": wide("Glm4"),
    "cohere": wide("Cohere", use_qk_norm=True),
    "cohere2": llama_like("Cohere2", **SLIDING),
    "starcoder2": wide("Starcoder2", sliding_window=5),
    "stablelm": llama_like("StableLm", hidden_size=32, use_qkv_bias=True, qk_layernorm=True),
    "nemotron": wide("Nemotron"),
    "exaone4": wide("Exaone4", **SLIDING),
    "ernie4_5": wide("Ernie4_5", use_bias=True),
    "helium": llama_like("Helium", head_dim=6),
    "bitnet": llama_like("BitNet"),
    "apertus": wide("Apertus", rope_parameters=LONGER),
    "arcee": wide("Arcee"),
    "hunyuan_v1_dense": wide("HunYuanDenseV1"),
    "seed_oss": wide("SeedOss"),
    "minicpm3": llama_like(
        "MiniCPM3",
        num_key_value_heads=4,
        q_lora_rank=10,
        kv_lora_rank=8,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=5,
        dim_model_base=12,
    ),
    "ministral": wide("Ministral", **SLIDING),
    "internlm3": wide("InternLM3"),
    "cwm": wide("Cwm", **SLIDING, rope_parameters=LONGER),
    "jais2": wide("Jais2"),
    "nanochat": llama_like("NanoChat"),
    "persimmon": llama_like("Persimmon", hidden_size=32),
    "doge": llama_like("Doge", keep_window_size=5),
    "diffllama": llama_like("DiffLlama"),
    "modernbert-decoder": llama_like(
        "ModernBertDecoder", local_attention=8, layer_types=SLIDING["layer_types"], cls_token_id=1, sep_token_id=2
    ),
    "falcon": decoder("Falcon", hidden_size=24, num_hidden_layers=2, num_attention_heads=3),
    "falcon-new": decoder(
        "Falcon",
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_kv_heads=2,
        new_decoder_architecture=True,
        bias=True,
    ),
    "falcon-alibi": decoder("Falcon", hidden_size=24, num_hidden_layers=2, num_attention_heads=3, alibi=True),
    "bloom": decoder("Bloom", hidden_size=24, n_layer=2, n_head=3),
    "gptj": decoder("GPTJ", **GPT, rotary_dim=4),
    "gpt_neo": decoder(
        "GPTNeo",
        hidden_size=24,
        num_layers=2,
        num_heads=3,
        attention_types=[[["global", "local"], 1]],
        window_size=5,
        max_position_embeddings=64,
    ),
    "gpt_neox_japanese": decoder(
        "GPTNeoXJapanese",
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_multiple_size=2,
        max_position_embeddings=64,
    ),
    "mpt": decoder("Mpt", d_model=24, n_layers=2, n_heads=3, max_seq_len=64, expansion_ratio=2),
    "codegen": decoder("CodeGen", **{**GPT, "n_embd": 32, "n_head": 4}, n_ctx=64, rotary_dim=4),
    "ctrl": decoder("CTRL", **GPT, dff=40),
    "openai-gpt": decoder("OpenAIGPT", **GPT),
    "gpt_bigcode": decoder("GPTBigCode", **GPT),
    "gpt_bigcode-many": decoder("GPTBigCode", **GPT, multi_query=False),
    "biogpt": decoder(
        "BioGpt",
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        max_position_embeddings=64,
    ),
}
