"""Decoders with experts, with layers that are not attention, or with no attention at all, tiny."""

from zoo_fields import HYBRID, SLIDING, Maker, decoder, llama_like, wide

EAGER = {"experts_implementation": "eager"}  # torch's grouped product takes no float64
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 2.0, "original_max_position_embeddings": 32}
LOCAL = {**EAGER, "num_local_experts": 4, "num_experts_per_tok": 2}
EXPERTS = {**EAGER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
ROUTED = {**EAGER, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "n_shared_experts": 1}
LATENT = {  # multi-head latent attention: keys 10 wide, values 5
    "num_key_value_heads": 4,
    "q_lora_rank": 10,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
}
DELTA = {  # a gated delta rule's heads
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 5,
    "linear_conv_kernel_dim": 3,
}
MAMBA = {"mamba_d_state": 4, "mamba_d_conv": 3}
MAMBA_2 = {**MAMBA, "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_chunk_size": 4}
STATE = {"hidden_size": 24, "num_hidden_layers": 2, "state_size": 4, "conv_kernel": 3}

MIXTURES: dict[str, Maker] = {
    "phimoe": wide("Phimoe", **LOCAL, sliding_window=5, router_jitter_noise=0.0, attention_bias=True),
    "mixtral": wide("Mixtral", **LOCAL, sliding_window=5),
    "granitemoe": wide("GraniteMoe", **LOCAL, attention_multiplier=0.3, residual_multiplier=0.7),
    "granitemoeshared": wide("GraniteMoeShared", **LOCAL, shared_intermediate_size=20, attention_multiplier=0.3),
    "olmoe": llama_like("Olmoe", **EAGER, num_experts=4, num_experts_per_tok=2),
    "qwen2_moe": wide("Qwen2Moe", **EXPERTS, shared_expert_intermediate_size=28),
    "qwen3_moe": wide("Qwen3Moe", **EXPERTS, mlp_only_layers=[0]),
    "deepseek_v2": llama_like("DeepseekV2", **LATENT, **ROUTED, first_k_dense_replace=1),
    "deepseek_v3": llama_like("DeepseekV3", **LATENT, **ROUTED, first_k_dense_replace=1, n_group=2, topk_group=1),
    "glm4_moe": wide("Glm4Moe", **ROUTED, first_k_dense_replace=1, use_qk_norm=True),
    "dots1": wide("Dots1", **ROUTED, first_k_dense_replace=1, **SLIDING),
    "afmoe": wide("Afmoe", **EXPERTS, num_shared_experts=1, num_dense_layers=1, **SLIDING),
    "exaone_moe": wide("ExaoneMoe", **EXPERTS, num_shared_experts=1, first_k_dense_replace=1, **SLIDING),
    "cohere2_moe": wide("Cohere2Moe", **EAGER, num_experts=4, num_experts_per_tok=2, num_shared_experts=1, **SLIDING),
    "deepseek_v32": llama_like(
        "DeepseekV32",
        **LATENT,
        **ROUTED,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        head_dim=4,
        index_topk=4,
        index_head_dim=8,
        index_n_heads=2,
    ),
    "longcat_flash": llama_like(
        "LongcatFlash",
        **LATENT,
        **EAGER,
        head_dim=4,
        num_layers=2,
        ffn_hidden_size=40,
        expert_ffn_hidden_size=20,
        n_routed_experts=4,
        moe_topk=2,
        zero_expert_num=2,
    ),
    "mimo_v2_flash": llama_like(
        "MiMoV2Flash",
        **EAGER,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        head_dim=8,
        v_head_dim=6,
        **SLIDING,
    ),
    "dbrx": decoder(
        "Dbrx",
        **EAGER,
        d_model=24,
        n_heads=4,
        n_layers=2,
        max_seq_len=64,
        attn_config={"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 2.0},
        ffn_config={"ffn_hidden_size": 20, "moe_num_experts": 4, "moe_top_k": 2},
    ),
    "gpt_oss": wide("GptOss", **LOCAL, **SLIDING, rope_parameters=YARN),
    "llama4_text": wide(
        "Llama4Text",
        num_local_experts=4,
        num_hidden_layers=4,
        intermediate_size_mlp=44,
        interleave_moe_layer_step=2,
        no_rope_layers=[1, 0, 0, 1],
        attention_chunk_size=5,
        floor_scale=4,
    ),
    "ernie4_5_moe": wide(
        "Ernie4_5_Moe", **EAGER, moe_num_experts=4, moe_k=2, moe_intermediate_size=20, moe_num_shared_experts=1
    ),
    "hunyuan_v1_moe": wide("HunYuanMoEV1", **EAGER, num_experts=4, moe_topk=2),
    "minimax": wide("MiniMax", **LOCAL, **HYBRID, block_size=4),
}

HYBRIDS: dict[str, Maker] = {
    "qwen3_next": wide(
        "Qwen3Next", **EXPERTS, **DELTA, **HYBRID, shared_expert_intermediate_size=28, partial_rotary_factor=0.5
    ),
    "qwen3_5_text": wide("Qwen3_5Text", **DELTA, **HYBRID, partial_rotary_factor=0.5),
    "olmo_hybrid": wide("OlmoHybrid", **DELTA, **HYBRID),
    "jamba": wide(
        "Jamba",
        **EAGER,
        **MAMBA,
        num_experts=4,
        num_experts_per_tok=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        mamba_dt_rank=3,
    ),
    "falcon_h1": wide("FalconH1", **MAMBA_2, mamba_d_ssm=24, key_multiplier=0.7, attention_out_multiplier=0.8),
    "bamba": wide("Bamba", **MAMBA_2, attn_layer_indices=[1]),
    "granitemoehybrid": wide(
        "GraniteMoeHybrid", **LOCAL, **MAMBA_2, **HYBRID, shared_intermediate_size=20, attention_multiplier=0.3
    ),
    "zamba2": llama_like(
        "Zamba2",
        num_key_value_heads=4,
        num_hidden_layers=3,
        layers_block_type=["linear_attention", "hybrid", "hybrid"],
        mamba_d_state=4,
        mamba_d_conv=3,
        n_mamba_heads=4,
        mamba_ngroups=2,
        chunk_size=4,
        use_mem_rope=True,
        adapter_rank=4,
    ),
    "nemotron_h": wide(
        "NemotronH",
        layers_block_type=["linear_attention", "full_attention", "mlp"],
        ssm_state_size=4,
        mamba_num_heads=4,
        mamba_head_dim=6,
        n_groups=2,
        conv_kernel=3,
        chunk_size=4,
    ),
    "lfm2": wide("Lfm2", block_multiple_of=8, layer_types=["conv", "full_attention"]),
    "lfm2_moe": wide("Lfm2Moe", **EXPERTS, num_dense_layers=1, layer_types=["conv", "full_attention"]),
    "kimi_linear": llama_like(
        "KimiLinear",
        **{**LATENT, "q_lora_rank": None},
        **EAGER,
        **HYBRID,
        num_local_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_intermediate_size=20,
        linear_head_dim=6,
        linear_num_heads=4,
        linear_conv_kernel_dim=3,
    ),
    "zamba": llama_like(
        "Zamba",
        num_key_value_heads=4,
        num_hidden_layers=3,
        layers_block_type=["linear_attention", "hybrid", "hybrid"],
        mamba_d_state=4,
        mamba_d_conv=3,
        mamba_dt_rank=3,
        n_mamba_heads=2,
    ),
    "recurrent_gemma": llama_like(
        "RecurrentGemma", hidden_size=32, lru_width=32, attention_window_size=5, block_types=("recurrent", "attention")
    ),
}

RECURRENT: dict[str, Maker] = {
    "mamba": decoder("Mamba", **STATE, time_step_rank=3),
    "mamba2": decoder("Mamba2", **STATE, num_heads=4, head_dim=12, n_groups=2, chunk_size=4),
    "falcon_mamba": decoder("FalconMamba", **STATE, time_step_rank=3),
    "rwkv": decoder("Rwkv", hidden_size=24, num_hidden_layers=2, context_length=64, rescale_every=0),
}
