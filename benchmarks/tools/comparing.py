"""The comparison that is timed: five methods, their three rates, three seeds."""

TOKENS, RANK_QV, RANK_ALL, SEEDS = 20, 8, 4, 3
RATES = {  # of each method's own grid in tunescope, for both
    "soft": (3e-3, 3e-2, 1e-1),
    "prefix": (1e-3, 1e-2, 5e-2),
    "prefix by a network": (1e-3, 1e-2, 5e-2),
    "LoRA on q, v": (3e-4, 2e-3, 1e-2),
    "LoRA on all maps": (3e-4, 2e-3, 1e-2),
}
ARMS = {
    "soft": f"soft:length={TOKENS}",
    "prefix": f"prefix:length={TOKENS}",
    "prefix by a network": f"prefix:length={TOKENS},mlp=96",
    "LoRA on q, v": f"lora:rank={RANK_QV}",
    "LoRA on all maps": f"lora:rank={RANK_ALL},sites=attn.q,attn.k,attn.v,attn.o,ffn.in,ffn.gate,ffn.out",
}
