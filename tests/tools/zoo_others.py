"""Encoders, encoder-decoders, speech and vision, tiny."""

import tiny
from zoo_fields import Maker, bart_like, bert_like, decoder, like, roberta_like

T5 = {
    "vocab_size": tiny.VOCAB,
    "d_model": 24,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 2,
    "num_heads": 3,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
VISION = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 8,
    "patch_size": 4,
}
RELATIVE = {"relative_attention": True, "position_biased_input": False, "max_relative_positions": 16}
BIG_BIRD = {"bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
MODULE = {
    **{field: value for field, value in tiny.LLAMA_LIKE.items() if field != "max_position_embeddings"},
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "attn_logit_softcapping": 2.0,
    "sliding_window": 5,
    "max_position_embeddings": 64,
}
t5_like = like(T5)
vision_like = like(VISION)

ENCODERS: dict[str, Maker] = {
    "electra": bert_like("Electra", embedding_size=16),
    "albert": bert_like("Albert", embedding_size=16),
    "modernbert": bert_like(
        "ModernBert",
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
        local_attention=4,
        layer_types=["full_attention", "sliding_attention"],
    ),
    "deberta": bert_like("Deberta", **RELATIVE, pos_att_type=["c2p", "p2c"]),
    "deberta-v2": bert_like("DebertaV2", **RELATIVE, pos_att_type=["c2p", "p2c"]),
    "xlm-roberta": roberta_like("XLMRoberta"),
    "camembert": roberta_like("Camembert"),
    "mpnet": roberta_like("MPNet"),
    "longformer": roberta_like("Longformer", attention_window=[4, 4]),
    "nomic_bert": bert_like("NomicBert", num_attention_heads=4),
    "eurobert": bert_like(
        "EuroBert",
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mask_token_id=3,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "roformer": bert_like("RoFormer", num_attention_heads=4, embedding_size=16),
    "convbert": bert_like("ConvBert", num_attention_heads=4, embedding_size=16, conv_kernel_size=3),
    "ernie": bert_like("Ernie", use_task_id=True),
    "mobilebert": bert_like(
        "MobileBert", num_attention_heads=2, embedding_size=16, intra_bottleneck_size=12, num_feedforward_networks=2
    ),
    "rembert": bert_like("RemBert", input_embedding_size=16, output_embedding_size=20, bos_token_id=1, eos_token_id=2),
    "squeezebert": bert_like("SqueezeBert", num_attention_heads=4, embedding_size=24),
    "roberta-prelayernorm": roberta_like("RobertaPreLayerNorm"),
    "big_bird": bert_like("BigBird", attention_type="original_full", **BIG_BIRD),
    "big_bird-sparse": bert_like("BigBird", block_size=1, num_random_blocks=1, **BIG_BIRD),
    "xlnet": decoder("XLNet", d_model=24, n_layer=2, n_head=3, d_inner=40),
    "clip_text_model": bert_like("CLIPText", bos_token_id=1, eos_token_id=2),
}

PAIRS: dict[str, Maker] = {
    "mt5": t5_like("MT5"),
    "umt5": t5_like("UMT5"),
    "longt5": t5_like("LongT5", local_radius=2),
    "longt5-global": t5_like("LongT5", local_radius=2, encoder_attention_type="transient-global", global_block_size=3),
    "pegasus": bart_like("Pegasus"),
    "pegasus_x": bart_like("PegasusX", num_global_tokens=2, block_size=4),
    "marian": bart_like("Marian"),
    "led": bart_like(
        "LED", attention_window=[4, 4], max_encoder_position_embeddings=64, max_decoder_position_embeddings=64
    ),
    "bigbird_pegasus": bart_like("BigBirdPegasus", attention_type="original_full"),
    "bigbird_pegasus-sparse": bart_like("BigBirdPegasus", block_size=1, num_random_blocks=1),
    "m2m_100": bart_like("M2M100"),
    "blenderbot": bart_like("Blenderbot"),
    "blenderbot-small": bart_like("BlenderbotSmall"),
    "plbart": bart_like("PLBart"),
    "fsmt": bart_like("FSMT", src_vocab_size=tiny.VOCAB, tgt_vocab_size=tiny.VOCAB),
    "t5gemma": decoder("T5Gemma", encoder=MODULE, decoder=MODULE),
}

SPEECH: dict[str, Maker] = {
    "whisper": bart_like("Whisper", num_mel_bins=8, max_source_positions=6, max_target_positions=64),
}

VISION_MODELS: dict[str, Maker] = {
    "vit": vision_like("ViT"),
    "dinov2": vision_like("Dinov2", mlp_ratio=2),
    "clip_vision_model": vision_like("CLIPVision"),
    "siglip_vision_model": vision_like("SiglipVision"),
}
