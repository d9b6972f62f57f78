"""A row of a batch equals its artifact alone, on every family and for every method that a row can have."""

from contextlib import nullcontext
from typing import Any

import odd_families
import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor
from zoo import zoo

import tunescope as ts
from tunescope.attachment.bank.rowwise import EXPERT
from tunescope.models.anatomy import kind
from tunescope.models.family import family_names, find_family

FAMILIES = family_names()
ANYWHERE = {
    "long": "prefix:length=5",
    "short": "prefix:length=2",
    "mlp": "prefix:length=3,mlp=4",
    "inputs": "inputs:length=3",
    "soft": "soft:length=4",
    "softer": "soft:length=3,init_from=normal",
    "lora": "lora:rank=2,alpha=3",
    "wider": "lora:rank=4",
    "everywhere": "lora:rank=3,sites=attn.q,attn.k,attn.v,attn.o,ffn.in,ffn.out",
    "sequential": "adapter:bottleneck=3,sites=ffn",
    "parallel": "adapter:bottleneck=3,placement=parallel,sites=ffn,scale=4.0",
    "heads": "adapter:bottleneck=3,placement=multi-head,sites=attn.heads",
    "stream": "adapter:bottleneck=2,sites=attn,ffn,source=stream",
    "beside": "adapter:bottleneck=3,placement=parallel,sites=attn,ffn,source=stream",
    "mam": "prefix:length=3+adapter:bottleneck=3,placement=parallel,sites=ffn,scale=4.0",
    "both": "soft:length=4+lora:rank=2,sites=attn.k,attn.v",
    "twice": "lora:rank=2+lora:rank=3",
}
DECODERS = {
    "text": "text:text=w5 w6 w7",
    "after": "prefix:length=3,positions=after",
    "infix": "infix:length=2",
    "front and behind": "prefix:length=2+infix:length=3",
    "anchors": "anchors:text=w5 w6 w7 w8 w9,length=5,keep=1,4",
    "all": "text:text=w5 w6+prefix:length=2+lora:rank=2",
}
NO_BIAS = ("llama", "mistral", "qwen3", "gemma2", "t5")
NO_STREAM = ("gemma2", "gpt_neox", "opt", "phi")
SEVERAL = ("bart", "mbart", "pegasus")  # families whose contexts of several lengths cannot be told apart


def arms(family: str) -> dict[str, str]:
    which = find_family(family).kind
    found = dict(ANYWHERE) | (DECODERS if which == "decoder" else {})
    if family not in NO_BIAS:
        found["bias"] = "bias"
    if family in NO_STREAM:
        del found["stream"], found["beside"]
    return found


def batch(model: Any, rows: int, padding: str) -> dict[str, Tensor]:
    """Rows of lengths 7, 6, 5, 4, 7, ..."""
    text = tiny.ids(rows, 7)
    given = {"input_ids": text}
    if padding != "none":
        mask = torch.ones_like(text)
        for row in range(rows):
            missing = row % 4
            mask[row, 7 - missing :] = 0
            if padding == "left":
                mask[row] = mask[row].flip(0)
        given = {"input_ids": text * mask + model.config.pad_token_id * (1 - mask), "attention_mask": mask}
        if kind(model) == "decoder":
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = tiny.ids(rows, 5, seed=2)
    if kind(model) == "decoder":
        given["output_start"] = torch.tensor([3 + row % 2 for row in range(rows)])
    return given


def compared(model: Any, out: Any, alone: Any, mask: Tensor | None) -> None:
    """To 1e-12 in float64; Gemma's norms go through float32 whatever is asked."""
    name = "logits" if "logits" in out else "last_hidden_state"
    one, other = out[name], alone[name]
    if mask is not None and one.shape[1] == mask.shape[1]:
        one, other = one[mask.bool()], other[mask.bool()]
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6 if model.config.model_type == "gemma2" else 1e-12)


def refused(family: str, name: str, padding: str) -> bool:
    tokens = name in ("soft", "softer", "both")
    is_told = find_family(family).kind == "encoder"  # its positions
    return (
        tokens and find_family(family).kind != "decoder" and (family in SEVERAL or (padding == "left" and not is_told))
    )


# texts are padded as their kind is asked: decoders on the left; each way on one of each kind
PADDED = [
    (family, padding)
    for family in FAMILIES
    for padding in ("none", "right", "left")
    if family in ("gpt2", "bert", "t5") or padding == ("left" if find_family(family).kind == "decoder" else "right")
]


@pytest.mark.parametrize(("family", "padding"), PADDED)
def test_each_row_is_as_with_its_artifact_alone(family: str, padding: str) -> None:
    model = tiny.make(family)
    names = [name for name in arms(family) if not refused(family, name, padding)]
    members = {name: tiny.away(model, arms(family)[name], seed) for seed, name in enumerate(names)}
    rows: list[str | None] = [*names, None, *names[:3], None]
    given = batch(model, len(rows), padding)
    with ts.attach(model, ts.Bank(members), tokenizer=tiny.tokenizer()), torch.no_grad():
        together = model(**given, rows=rows)
    for index, name in enumerate(rows):
        own = {key: value[index : index + 1] for key, value in given.items()}
        mask = own.get("attention_mask")
        out = {key: value[index : index + 1] for key, value in together.items() if isinstance(value, Tensor)}
        with torch.no_grad():
            if name is None:
                alone = model(**own)
            else:
                with ts.attach(model, *members[name], tokenizer=tiny.tokenizer()):
                    alone = model(**own)
        if family == "gemma2" and padding == "left" and next(iter(alone.values())).isnan().any():
            continue  # transformers' own attention makes NaN of left padding that a sliding window hides altogether
        compared(model, out, alone, mask if not model.config.is_encoder_decoder else None)


@torch.no_grad()
@pytest.mark.parametrize("rows", [["a", "b"], ["b", "a"]], ids=str)
@pytest.mark.parametrize(
    ("other", "arm"),
    [
        ("lora:rank=2,gain=true", "bias+lora:rank=2,gain=true"),
        ("lora:rank=2,gain=true", "lora:rank=2,sites=path:*.c_attn+lora:rank=2,gain=true"),
        ("adapter:bottleneck=4,sites=ffn.out", "bias+adapter:bottleneck=4,sites=ffn.out"),
    ],
)
def test_deltas_of_a_map_act_in_their_row_s_order_by_whatever_name_each_calls_it(
    other: str, arm: str, rows: list[str]
) -> None:
    model = tiny.make("gpt2")
    members = {
        name: tiny.away(model, method, seed) for seed, (name, method) in enumerate({"a": other, "b": arm}.items())
    }
    ids = tiny.ids(2)
    with ts.attach(model, ts.Bank(members)):
        together = model(ids, rows=rows).logits
    for index, name in enumerate(rows):
        with ts.attach(model, *members[name]):
            alone = model(ids[index : index + 1]).logits
        torch.testing.assert_close(together[index : index + 1], alone, rtol=0, atol=1e-12)


def test_a_delta_at_an_expert_is_refused_which_sees_some_tokens_and_not_whose_they_are() -> None:
    widths = {"vocab_size": tiny.VOCAB, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_heads": 4, "num_experts": 2}
    layers = {"num_layers": 2, "num_decoder_layers": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    model = tiny.build(tf.AutoModelForSeq2SeqLM, tf.SwitchTransformersConfig(**widths, **layers, pad_token_id=0))
    given = {"input_ids": tiny.ids(), "decoder_input_ids": tiny.ids(2, 4)}
    everywhere, beside = ts.LoRA(rank=2, sites=("all-linear",)), ts.LoRA(rank=2, sites=("attn.q",))
    with ts.attach(model, ts.Bank({"a": everywhere, "b": beside})):
        with pytest.raises(
            ts.UserError, match=r"Bank: 'a' holds LoRA\(.*\) at '.*experts\.expert_0\.w[io]', an expert"
        ):
            model(**given, rows=["a", "b"])
        model(**given, rows=["b", None])


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("encoder.block.1.mlp.experts.expert_0.wi", True),
        ("layers.0.experts.3", True),
        ("layers.0.mlp.experts.11.down", True),
        ("layers.0.mlp.shared_experts.down_proj", False),
        ("layers.3.mlp.down_proj", False),
        ("layers.0.mlp.experts", False),  # the block, which sees all tokens
    ],
)
def test_an_expert_is_told_by_its_path(path: str, is_one: bool) -> None:
    assert bool(EXPERT.search(path)) is is_one


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_biases_of_a_masked_model_go_by_row_also_those_that_its_head_holds_a_second_time(family: str) -> None:
    model = tiny.build(tf.AutoModelForMaskedLM, tiny.configs()[family])
    members = {name: tiny.away(model, "bias", seed) for seed, name in enumerate("ab")}
    assert any("head:" in name and name.endswith("bias") for name in members["a"][0].tensors)
    ids, rows = tiny.ids(3), ["a", None, "b"]
    with ts.attach(model, ts.Bank(members)):
        together = model(ids, rows=rows).logits
    for index, name in enumerate(rows):
        with ts.attach(model, *members[name]) if name else nullcontext():
            alone = model(ids[index : index + 1]).logits
        torch.testing.assert_close(together[index : index + 1], alone, rtol=0, atol=1e-12)


def test_biases_of_a_masked_model_are_first_asked_for_behind_a_batch_with_contexts() -> None:
    model = tiny.build(tf.AutoModelForMaskedLM, tiny.configs()["bert"])
    bias, ids = tiny.away(model, "bias", 1), tiny.ids(3)
    with ts.attach(model, ts.Bank({"b": bias, "p": [ts.Prefix(length=3)], "l": [ts.LoRA(rank=2)]})):
        model(ids, rows=["p", "l", None])
        together = model(ids, rows=["b"] * 3).logits
    with ts.attach(model, *bias):
        torch.testing.assert_close(together, model(ids).logits, rtol=0, atol=1e-12)


def test_a_head_that_takes_a_map_s_weights_and_does_not_call_it_has_no_bias_by_row() -> None:
    sizes = dict.fromkeys(("embedding_size", "true_hidden_size", "intra_bottleneck_size"), 8)
    config = tf.MobileBertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        normalization_type="layer_norm", num_feedforward_networks=2, max_position_embeddings=32, **sizes,
    )  # fmt: skip
    model = tf.MobileBertForMaskedLM(config).eval()
    bank = ts.Bank({"a": tiny.away(model, "bias", 0)})
    refused = pytest.raises(ts.UserError, match=r"'head:cls\.predictions\.bias', which is no bias that a row can have")
    with ts.attach(model, bank), refused:
        model(torch.tensor([[3, 4]]), rows=["a"])


@torch.no_grad()
def test_a_map_whose_bias_is_taken_without_a_call_has_no_bias_by_row() -> None:
    """Jamba's `dt_proj`, whose bias is added within the scan."""
    config = odd_families.jamba()
    config.mamba_conv_bias = False  # which is no map's, and refused by itself
    model = tiny.build(tf.AutoModelForCausalLM, config)
    bank = ts.Bank({"a": tiny.away(model, "bias", 0)})
    with ts.attach(model, bank), pytest.raises(ts.UserError, match=r"dt_proj\.bias', which is no bias that a row can"):
        model(tiny.ids(), rows=["a", "a"])


@pytest.mark.parametrize("family", ["longformer", "led", "xlnet"])
def test_a_family_that_puts_the_length_before_the_rows_has_no_bank(family: str) -> None:
    model = zoo(family)
    with pytest.raises(ts.UserError, match="computes attention by itself"):
        ts.attach(model, ts.Bank({"a": ts.LoRA(rank=2, sites=("all-linear",))}))


@torch.no_grad()
def test_two_deltas_of_one_row_keep_their_order_beside_a_row_whose_second_is_of_their_kind() -> None:
    """Row a has an adapter second; those of row b are adapters both, and neither commutes with the other."""
    model, site = tiny.make("gpt2"), "sites=ffn.out"
    arms = {
        "a": f"lora:rank=2,{site}+adapter:bottleneck=3,{site}",
        "b": f"adapter:bottleneck=3,{site}+adapter:bottleneck=3,{site}",
    }
    members = {name: tiny.away(model, arm, seed, by=1.0) for seed, (name, arm) in enumerate(arms.items())}
    ids = tiny.ids(2)
    with ts.attach(model, ts.Bank(members)):
        together = model(ids, rows=["a", "b"]).logits
    for index, name in enumerate("ab"):
        with ts.attach(model, *members[name]):
            alone = model(ids[index : index + 1]).logits
        torch.testing.assert_close(together[index : index + 1], alone, rtol=0, atol=1e-12)
