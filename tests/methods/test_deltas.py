"""Deltas, and the mixtures made of them, against the papers' formulas in a model written out in plain torch."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
from reference import models, unified
from reference.bart import bart
from torch import Tensor, nn
from zoo import zoo

import tunescope as ts
from tunescope.attachment.attention.context import Extra
from tunescope.attachment.attention.function import STATE, LayerState, attention
from tunescope.attachment.initial_artifacts import initialised
from tunescope.attachment.sites.site_map import sites_of
from tunescope.methods.artifact import Artifact, SiteDelta, SiteShape
from tunescope.methods.text_form import methods, parse
from tunescope.models.family import find_family
from tunescope.system import plugins

WRITTEN = {"gpt2": models.gpt2, "bert": models.bert, "bart": bart}  # a decoder, an encoder, an encoder-decoder
each = pytest.mark.parametrize("family", list(WRITTEN))


def texts(family: str) -> dict[str, Tensor]:
    return {"input_ids": tiny.ids()} | ({"decoder_input_ids": tiny.ids(length=5, seed=2)} if family == "bart" else {})


def moved(model: Any, arm: str) -> list[Artifact]:
    """The arm's artifacts, every tensor away from its start."""
    artifacts = initialised(model, parse(arm), None, 0)
    generator = torch.Generator().manual_seed(2)
    for artifact in artifacts:
        for name, value in artifact.tensors.items():
            noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
            artifact.tensors[name] = value + 0.2 * noise
    return artifacts


def check(family: str, arm: str, formula: Callable[..., Tensor], prefix: Any = models.no_prefix) -> None:
    """Attached, the model is the written-out model in which `formula` acts at the delta's sites."""
    model = tiny.make(family)
    artifacts = moved(model, arm)
    given = texts(family)
    delta = artifacts[-1]

    def change(site: str, x: Tensor, h: Tensor, query: Tensor | None) -> Tensor:
        own = {name.removeprefix(f"{site}:"): t for name, t in delta.tensors.items() if name.startswith(f"{site}:")}
        return formula(x, h, own, query) if own else h

    with torch.no_grad():
        with ts.attach(model, *artifacts):
            got = tiny.output(model, given)
        expected = WRITTEN[family](model, given, change, prefix(artifacts[0].tensors) if len(artifacts) > 1 else prefix)
        plain = tiny.output(model, given)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)
    assert (got - plain).abs().max() > 1e-3


@each
def test_the_written_out_model_is_the_model(family: str) -> None:
    model = tiny.make(family)
    with torch.no_grad():
        expected = tiny.output(model, texts(family))
        torch.testing.assert_close(WRITTEN[family](model, texts(family)), expected, rtol=0, atol=1e-11)


@each
@pytest.mark.parametrize("sites", ["attn.q,attn.v", "attn.k", "attn.o", "ffn.in,ffn.out"])
def test_lora_is_a_low_rank_update_of_its_maps(family: str, sites: str) -> None:
    def formula(x: Tensor, h: Tensor, p: dict[str, Tensor], query: Any) -> Tensor:
        return unified.lora(x, h, p["a"], p["b"], alpha=5)

    check(family, f"lora:rank=2,alpha=5,sites={sites}", formula)


def test_lora_s_scale_is_one_whatever_the_rank_unless_alpha_is_given() -> None:
    assert [ts.LoRA(rank=rank).scale for rank in (1, 8, 64)] == [1.0, 1.0, 1.0]
    assert ts.LoRA(rank=4, alpha=8).scale == 2.0


@each
@pytest.mark.parametrize("sites", ["ffn", "attn", "attn.heads", "ffn.out", "attn,ffn"])
@pytest.mark.parametrize("scale", ["1.0", "4.0", "learned"])
def test_adapters_read_h_in_sequence_and_x_in_parallel(family: str, sites: str, scale: str) -> None:
    def amount(p: dict[str, Tensor]) -> Any:
        return p["scale"] if scale == "learned" else float(scale)

    arm = f"adapter:bottleneck=3,sites={sites},scale={scale}"
    check(family, arm, lambda x, h, p, query: unified.sequential(x, h, p, amount(p)))
    check(family, f"{arm},placement=parallel", lambda x, h, p, query: unified.parallel(x, h, p, amount(p)))


ACTIVE = {"relu": unified.relu, "silu": unified.silu, "gelu": unified.gelu, "softmax": unified.softmax}


@each
@pytest.mark.parametrize("name", ACTIVE)
def test_the_multi_head_adapter_reads_each_head_s_query(family: str, name: str) -> None:
    def formula(x: Tensor, h: Tensor, p: dict[str, Tensor], query: Tensor) -> Tensor:
        return unified.multi_head(query, h, p, 2.0, ACTIVE[name])

    check(family, f"adapter:bottleneck=3,placement=multi-head,sites=attn.heads,scale=2.0,activation={name}", formula)


@each
@pytest.mark.parametrize("name", ACTIVE)
def test_an_activation_over_the_bottleneck_is_for_every_placement(family: str, name: str) -> None:
    arm, active = f"adapter:bottleneck=3,activation={name}", ACTIVE[name]
    check(family, arm, lambda x, h, p, query: h + unified.bottleneck(h, p, active))
    check(family, f"{arm},placement=parallel", lambda x, h, p, query: h + unified.bottleneck(x, p, active))


def test_a_prefix_is_the_multi_head_softmax_adapter_under_a_gate() -> None:
    """He et al., section 3.1, between the two pieces of our code: attention with a prefix, and the adapter."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 5, generator=g, dtype=torch.float64) for n in (7, 11, 11))
    key, value = (torch.randn(3, 4, 5, generator=g, dtype=torch.float64) for _ in range(2))
    plain, joined = nn.Module(), nn.Module()
    joined.__dict__[STATE] = LayerState((Extra(key, value),))
    bare, _ = attention(plain, q, k, v, None)
    prefixed, _ = attention(joined, q, k, v, None)
    adapter = ts.Adapter(bottleneck=4, placement="multi-head", activation="softmax", sites=("attn.heads",))
    side_by_side = q.transpose(1, 2).flatten(2)
    added = adapter.apply({"down": key / 5**0.5, "up": value.mT}, side_by_side, torch.zeros_like(side_by_side))
    on_prefix = (q @ key.mT / 5**0.5).exp().sum(-1, keepdim=True)
    gate = (on_prefix / (on_prefix + (q @ k.mT / 5**0.5).exp().sum(-1, keepdim=True))).transpose(1, 2)
    expected = (1 - gate) * bare + gate * added.view(2, 7, 3, 5)
    torch.testing.assert_close(prefixed, expected, rtol=0, atol=1e-12)
    assert float(gate.max() - gate.min()) > 0.3


@each
def test_an_adapter_s_norm_is_in_front_or_on_what_comes_out(family: str) -> None:
    def normed_in(x: Tensor, h: Tensor, p: dict[str, Tensor], query: Any) -> Tensor:
        return h + unified.bottleneck(unified.layer_norm(h, p["norm"], p["norm_bias"]), p)

    def normed_out(x: Tensor, h: Tensor, p: dict[str, Tensor], query: Any) -> Tensor:
        return h + unified.layer_norm(unified.bottleneck(x, p), p["norm"], p["norm_bias"])

    def normed_and_parallel(x: Tensor, h: Tensor, p: dict[str, Tensor], query: Any) -> Tensor:
        return h + unified.bottleneck(unified.layer_norm(x, p["norm"], p["norm_bias"]), p)

    check(family, "adapter:bottleneck=3,norm=in", normed_in)
    check(family, "adapter:bottleneck=3,norm=in,placement=parallel,sites=attn.heads", normed_and_parallel)
    check(family, "adapter:bottleneck=3,norm=out,placement=parallel", normed_out)


def test_a_learned_scale_starts_at_one() -> None:
    (artifact,) = initialised(tiny.make("gpt2"), [ts.Adapter(bottleneck=2, scale="learned")], None, 0)
    scales = [value for name, value in artifact.tensors.items() if name.endswith(":scale")]
    assert len(scales) == 2 and all(float(value) == 1 for value in scales)


def test_an_adapter_starts_as_lora_or_as_bert() -> None:
    model = tiny.make("bert")
    for start, spread in (("lora", 0.0), ("bert", 0.02)):
        (artifact,) = initialised(model, [ts.Adapter(bottleneck=20, start=start)], None, 0)
        ups = torch.cat([value.flatten() for name, value in artifact.tensors.items() if name.endswith(":up")])
        downs = torch.cat([value.flatten() for name, value in artifact.tensors.items() if name.endswith(":down")])
        assert float(ups.std()) == pytest.approx(spread, rel=0.1)
        assert float(downs.std()) == pytest.approx(0.02 if start == "bert" else 1 / (3 * 24) ** 0.5, rel=0.1)


@each
@pytest.mark.parametrize("scale", ["4.0", "learned"])
def test_a_norm_on_what_comes_out_stands_behind_the_scale(family: str, scale: str) -> None:
    def formula(x: Tensor, h: Tensor, p: dict[str, Tensor], query: Any) -> Tensor:
        scaled = (p["scale"] if scale == "learned" else 4.0) * unified.bottleneck(h, p)
        return h + unified.layer_norm(scaled, p["norm"], p["norm_bias"])

    check(family, f"adapter:bottleneck=3,norm=out,scale={scale}", formula)


@each
@pytest.mark.parametrize("norm", ["in", "out"])
def test_a_norm_of_the_multi_head_adapter_is_over_all_heads(family: str, norm: str) -> None:
    def formula(x: Tensor, h: Tensor, p: dict[str, Tensor], query: Tensor) -> Tensor:
        if norm == "in":
            return unified.multi_head(unified.layer_norm(query, p["norm"], p["norm_bias"]), h, p, 2.0)
        added = unified.multi_head(query, torch.zeros_like(h), p, 2.0)
        return h + unified.layer_norm(added, p["norm"], p["norm_bias"])

    check(family, f"adapter:bottleneck=3,placement=multi-head,sites=attn.heads,scale=2.0,norm={norm}", formula)


@each
def test_the_mam_adapter_is_a_gated_prefix_and_a_scaled_parallel_adapter(family: str) -> None:
    """He et al., section 4.6: prefix of length l at attention, PA at the ffn with s = 4."""

    def prefix(tensors: dict[str, Tensor]) -> Callable[[str], tuple[Tensor, Tensor]]:
        return lambda name: (tensors[f"{name}.key"], tensors[f"{name}.value"])

    arm = "prefix:length=5+adapter:bottleneck=7,placement=parallel,scale=4.0"
    check(family, arm, lambda x, h, p, query: unified.parallel(x, h, p, 4.0), prefix)


@each
def test_bitfit_is_every_bias_changed_and_nothing_else(family: str) -> None:
    model, by_hand = tiny.make(family), tiny.make(family)
    (artifact,) = moved(model, "bias")
    with torch.no_grad():
        for name, parameter in by_hand.base_model.named_parameters():
            if name.endswith("bias") and "pooler" not in name:
                parameter.add_(artifact.tensors.pop(name))
        expected = tiny.output(by_hand, tiny.batch(by_hand))
        (artifact,) = moved(model, "bias")
        with ts.attach(model, artifact):
            got = tiny.output(model, tiny.batch(model))
    assert torch.equal(got, expected)


@pytest.mark.parametrize(
    ("family", "named"),
    [
        ("deberta", {"bias", "q_bias", "v_bias"}),
        ("gpt_oss", {"bias", "gate_up_proj_bias", "down_proj_bias"}),
        ("mamba2", {"bias", "dt_bias"}),
        ("t5", set()),  # relative_attention_bias.weight is a table
        ("ernie4_5_moe", set()),  # e_score_correction_bias only chooses experts
        ("afmoe", set()),  # and so does expert_bias
    ],
)
def test_biases_by_other_names_are_biases_and_are_trained(family: str, named: set[str]) -> None:
    model = tiny.make(family) if family == "t5" else zoo(family)
    own = {name for name, _ in model.base_model.named_parameters() if name.rpartition(".")[2] in named}
    if not named:
        with pytest.raises(ts.UserError, match="has no such parameter to change"):
            ts.attach(model, ts.Bias())
        return
    with ts.attach(model, ts.Bias()) as tuned:
        leaves = {name.partition(".")[2]: leaf for name, leaf in tuned.train().named_parameters().items()}
        assert {name for name in leaves if not name.startswith("head:")} == own
        out = tiny.output(model, {"input_ids": tiny.ids()})
        (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)).sum().backward()
    assert {name.rpartition(".")[2] for name in own} == named
    still = [name for name, leaf in leaves.items() if leaf.grad is None or not leaf.grad.any()]
    assert not [name for name in still if name.rpartition(".")[2] != "bias"], still


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_full_takes_every_name_that_the_model_itself_lists(family: str) -> None:
    model = tiny.make(family)
    own = dict(model.named_parameters())
    for name, itself in own.items():
        with ts.attach(model, ts.Full(only=(name,))) as tuned:
            assert [leaf.shape for leaf in tuned.parameters()] == [itself.shape]
            changed = {listed for listed, now in model.named_parameters() if now is not own[listed]}
        assert changed == {name}


def test_full_takes_a_name_with_the_base_models_in_front_on_the_base_model_too() -> None:
    model = tiny.make("llama")
    with ts.attach(model, ts.Full(only=("model.norm.weight", "layers.0.*norm.weight"))) as tuned:
        assert list(tuned.named_parameters()) == [
            "0.layers.0.input_layernorm.weight",
            "0.layers.0.post_attention_layernorm.weight",
            "0.norm.weight",
        ]
        artifact = tuned.artifacts[0]
    with ts.attach(model.base_model, artifact) as tuned:
        assert len(tuned.parameters()) == 3


def test_a_name_that_no_parameter_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(ts.UserError) as caught:
        ts.attach(tiny.make("llama"), ts.Full(only=("norm.weight", "model.layers.0.mlp.upproj.weight")))
    told = str(caught.value)
    assert "named 'model.layers.0.mlp.upproj.weight'. Did you mean 'layers.*.mlp.up_proj.weight'?" in told
    assert "It has embed_tokens.weight, layers.*.self_attn.q_proj.weight," in told
    assert "Full(only=('embed_tokens.weight',)), say" in told and "attention_bias" not in told and "\n" not in told


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5", "bart", "llama"])
def test_full_tuning_takes_the_step_that_training_the_model_itself_takes(family: str) -> None:
    model, itself = tiny.make(family), tiny.make(family)
    given = tiny.batch(model)

    def loss(which: Any) -> Tensor:
        return tiny.real(given, tiny.output(which, given)).square().mean()

    with ts.attach(model, ts.Full()) as tuned:
        optimizers = [
            torch.optim.SGD(tuned.train().parameters(), lr=0.05),
            torch.optim.SGD(itself.parameters(), lr=0.05),
        ]
        for _ in range(2):
            for which, optimizer in zip((model, itself), optimizers, strict=True):
                optimizer.zero_grad()
                loss(which).backward()
                optimizer.step()
        with torch.no_grad():
            torch.testing.assert_close(loss(model), loss(itself), rtol=0, atol=1e-12)
    n = sum(p.numel() for name, p in itself.named_parameters() if "pooler" not in name)
    assert sum(value.numel() for value in tuned.parameters()) == n


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("context", ["", "+prefix:length=2", "+soft:length=3"])
@pytest.mark.parametrize("is_positional", [False, True])
def test_a_head_reads_each_row_s_first_real_token(padding: str, context: str, is_positional: bool) -> None:
    for family in ("bert", "roberta", "distilbert"):
        model = tiny.make(family)
        artifacts = moved(model, f"head:n_labels=3{context}")
        given = tiny.batch(model, padding)
        with torch.no_grad():
            with ts.attach(model, *artifacts[1:]) if context else torch.no_grad():
                states = tiny.output(model, given)
            with ts.attach(model, *artifacts):
                out = model(*given.values()) if is_positional else model(**given)
        first = [0, 0 if padding != "left" else 7 - tiny.LENGTHS[1]]
        head = artifacts[0].tensors
        expected = states[torch.arange(2), first] @ head["pooled:weight"].T + head["pooled:bias"]
        torch.testing.assert_close(out.logits, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(out.last_hidden_state, states, rtol=0, atol=0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dense", ["none", "tanh", "relu", "gelu"])
def test_a_head_is_a_map_or_two_with_their_activation_between(dense: Any, bias: bool) -> None:
    torch.manual_seed(0)
    head = ts.Head(n_labels=3, dense=dense, bias=bias)
    fresh = head.init(SiteShape(40, 40, 1))
    shapes = {"weight": (3, 40)} | ({} if dense == "none" else {"dense_weight": (40, 40)})
    assert {name: tuple(value.shape) for name, value in fresh.items() if "bias" not in name} == shapes
    assert {name for name in fresh if "bias" in name} == {name.replace("weight", "bias") for name in shapes if bias}
    for name, value in fresh.items():
        assert float(value.std()) == pytest.approx(0.0 if "bias" in name else 0.02, rel=0.2)
    p = {name: torch.randn(value.shape, dtype=torch.float64) for name, value in fresh.items()}
    x = torch.randn(2, 5, 40, dtype=torch.float64)
    state = x
    if dense != "none":
        state = {"tanh": torch.tanh, **ACTIVE}[dense](x @ p["dense_weight"].T + p.get("dense_bias", 0.0))
    expected = state @ p["weight"].T + p.get("bias", 0.0)
    torch.testing.assert_close(head.apply(p, x, x), expected, rtol=0, atol=1e-12)


def test_a_head_on_the_pooler_reads_the_first_token_alone() -> None:
    for token in ("last", "every"):
        with pytest.raises(ts.UserError, match=rf"a pooler reads the first token: leave out pooler, or token={token}"):
            ts.attach(tiny.make("bert"), ts.Head(pooler=True, token=token))  # type: ignore[arg-type]


def test_dropout_acts_in_training_alone() -> None:
    model = tiny.make("gpt2")
    (artifact,) = moved(model, "lora:rank=2,dropout=0.5")
    given = tiny.batch(model)
    with ts.attach(model, artifact) as tuned:
        resting = tiny.output(model, given)
        tuned.train()
        assert not torch.equal(tiny.output(model, given), tiny.output(model, given))
        tuned.eval()
        assert torch.equal(tiny.output(model, given), resting)
        assert not any(leaf.requires_grad for leaf in tuned.parameters())
    artifact.spec = ts.LoRA(rank=2)
    with ts.attach(model, artifact):
        assert torch.equal(tiny.output(model, given), resting)


@pytest.mark.parametrize("arm", ["lora", "adapter:scale=learned", "bias", "full", "prefix", "soft:length=3"])
def test_a_half_precision_model_is_tuned_in_float32(arm: str) -> None:
    model = tiny.make("gpt2").to(torch.bfloat16)
    given = tiny.batch(model)
    with ts.attach(model, *parse(arm)) as tuned:
        assert {leaf.dtype for leaf in tuned.train().parameters()} == {torch.float32}
        out = tiny.output(model, given)
        assert out.dtype == torch.bfloat16
        out.float().square().mean().backward()
        assert all(leaf.grad.dtype == torch.float32 for leaf in tuned.parameters())
    exact = copy.deepcopy(model).float()
    with ts.attach(exact, *tuned.artifacts), torch.no_grad():
        wide = tiny.output(exact, given)
    assert (wide - out).abs().max() < 0.05 * wide.abs().max()


@pytest.mark.parametrize("method", [methods()[name] for name in plugins.names("methods.deltas")])
def test_a_weight_change_is_the_map_that_the_delta_adds(method: Any) -> None:
    spec = method()
    if not isinstance(spec, SiteDelta) or type(spec).weight_change is SiteDelta.weight_change:
        return
    p = {name: torch.randn(value.shape, dtype=torch.float64) for name, value in spec.init(SiteShape(11, 13, 1)).items()}
    x, h = torch.randn(2, 5, 11, dtype=torch.float64), torch.randn(2, 5, 13, dtype=torch.float64)
    expected = h + x @ spec.weight_change(p).T
    torch.testing.assert_close(spec.apply(p, x, h), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ts.LoRA(rank=0), r"LoRA\(rank=0\): a 24 -> 24 map takes a rank in \[1, 24\]"),
        (ts.LoRA(rank=25), r"LoRA\(rank=25\): a 24 -> 24 map takes a rank in \[1, 24\]"),
        (ts.LoRA(dropout=1.0), r"LoRA\(dropout=1\): a share is at least 0 and below 1, as in dropout=0\.1"),
        (ts.LoRA(dropout=-0.1), r"LoRA\(dropout=-0\.1\): a share is at least 0 and below 1"),
        (ts.Adapter(bottleneck=0), r"Adapter\(bottleneck=0\): a bottleneck is at least 1 wide"),
        (ts.Adapter(placement="multi-head", sites=("ffn.in",)), "has no query to read: use the sites 'attn'"),
        (
            ts.Adapter(placement="multi-head", source="stream", sites=("attn",)),
            "reads the layer's query: leave out sou",
        ),
        (ts.Adapter(sites=("ffn.out",), source="stream"), "has no residual connection of its own to read: use whole"),
        (ts.Adapter(placement="paralel"), r"Adapter\(placement='paralel'\): input should be 'sequential', "),  # type: ignore[arg-type]
        (ts.LoRA(sites="attn.q"), r"LoRA\(sites='attn.q'\): sites is a tuple, of one too: type sites=\('attn.q',\)\.$"),  # type: ignore[arg-type]
        (ts.Adapter(sites="attn,ffn"), r"of one too: type sites=\('attn', 'ffn'\)"),  # type: ignore[arg-type]
        (ts.Full(rows=3), r"Full\(rows=3\): rows is a tuple, of one too: type rows=\(3,\)"),  # type: ignore[arg-type]
        (ts.LoRA(sites=3), r"LoRA\(sites=3\): input should be a valid string"),  # type: ignore[arg-type]
        (ts.Head(n_labels=0), "a head gives at least one number, and tells two apart"),
        (ts.Prefix(length=0), r"Prefix\(length=0\): a prefix has at least one position"),
        (ts.Prefix(text="w3 w4", length=2), r"without init_from does not read its text\. Add init_from='text' \(or"),
        (ts.Prefix(text="w3", length=1, init_from="noise"), "that begins as 'noise' does not read its text"),
        (ts.Soft(text="w3 w4", length=2), r"Soft\(text='w3 w4'\) without init_from does not read its text"),
        (ts.Soft(text="w3", init_from="uniform"), "that begins as 'uniform' does not read its text"),
        (ts.Prefix(mlp=0), "mlp=0 is no width of a network"),
        (ts.Prefix(mlp=-4), "mlp=-4 is no width of a network"),
        (ts.LoRA(alpha=0), r"LoRA\(alpha=0\) multiplies its change by 0 and can learn nothing"),
        (ts.Adapter(scale=0.0), r"Adapter\(scale=0\) multiplies its change by 0 and can learn nothing"),
        (ts.Soft(length=0), r"Soft\(length=0\): a soft prompt has at least one token"),
        (ts.Prefix(mlp=5, init_from="zero"), "has a network, which makes no zeros; init_from='zero' needs mlp=None"),
        (ts.Prefix(init_from="text"), r"needs text=\.\.\. and the model's tokenizer"),
        (ts.Prefix(init_from="text", text="w3 w4", length=5), "the text has only 2 tokens"),
        (ts.Soft(init_from="text"), r"needs text=\.\.\. and the model's tokenizer"),
        (ts.Soft(init_from="labels"), r"needs text=\.\.\. and the model's tokenizer"),
        (ts.Text(text=""), "has no tokens: give it words, as in text:text=Classify"),
        (ts.Infix(), "between input and output of a decoder; this model is an encoder"),
    ],
)
def test_what_no_model_takes_is_refused_in_words(spec: Any, message: str) -> None:
    with pytest.raises(ts.UserError, match=message):
        ts.attach(tiny.make("bert"), spec, tokenizer=tiny.tokenizer())


def test_a_scale_of_nothing_is_taken_where_something_else_learns() -> None:
    for spec in (ts.LoRA(rank=2, alpha=0, gain=True), ts.Adapter(bottleneck=2, scale=0.0, norm="out")):
        ts.attach(tiny.make("bert"), spec)


def test_what_one_kind_of_model_does_not_take_is_refused_in_words() -> None:
    for spec, family, message in (
        (ts.Head(), "gpt2", "reads an encoder; this model is a decoder: use label words"),
        (ts.Head(), "t5", "reads an encoder; this model is a encoder-decoder"),
        (
            ts.Prefix(positions="after"),
            "t5",
            r"Prefix\(positions='after'\) moves one text; this model is an encoder-decod",
        ),
        (ts.Bias(), "llama", r"no such parameter to change \(its config says attention_bias=False, mlp_bias=False\)"),
        (ts.Infix(length=0), "gpt2", "an infix has at least one position"),
        (ts.Text(text="w3"), "gpt2", r"Text needs the model's tokenizer: attach\(model, Text\(\.\.\.\), tokenizer"),
    ):
        with pytest.raises(ts.UserError, match=message):
            ts.attach(tiny.make(family), spec)
    shape = SiteShape(18, 24, 3)
    with pytest.raises(ts.UserError, match=r"acts on the heads: give it sites=attn\.heads"):
        ts.Adapter(placement="multi-head", sites=("attn",)).init(shape)


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "qwen2", "qwen3", "mbart", "t5"])
@pytest.mark.parametrize("placement", ["sequential", "parallel"])
def test_an_adapter_on_the_stream_reads_what_the_block_is_added_to(family: str, placement: str) -> None:
    """The stream is what the layer gives but for its last block; with it, that is the state behind."""
    model = tiny.make(family)
    (artifact,) = moved(model, f"adapter:bottleneck=3,sites=ffn,source=stream,placement={placement}")
    stack = "decoder" if find_family(family).kind == "decoder" else "encoder"
    site = f"{stack}.1.ffn"
    p = {name.removeprefix(f"{site}:"): t for name, t in artifact.tensors.items() if name.startswith(f"{site}:")}
    out = sites_of(model)[site].h.module
    layer = model.base_model.get_submodule(find_family(family).stacks[stack].layers)[1]
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, args, output: seen.update({name: output[0] if isinstance(output, tuple) else output})

    out.register_forward_hook(keep("h"))
    with ts.attach(model, artifact), torch.no_grad():
        out.register_forward_hook(keep("changed"))
        layer.register_forward_hook(keep("layer"))
        model(**tiny.batch(model, "none"))
    stream = seen["layer"] - seen["changed"]
    source = stream + seen["h"] if placement == "sequential" else stream
    expected = seen["h"] + unified.parallel(source, torch.zeros_like(seen["h"]), p, 1.0)
    torch.testing.assert_close(seen["changed"], expected, rtol=0, atol=1e-11)
    assert (seen["changed"] - seen["h"]).abs().max() > 1e-3


def test_lora_starts_with_numbers_that_go_by_the_width_that_it_reads() -> None:
    """Kaiming's uniform at sqrt(5), as in peft and the authors' code: up to 1 / sqrt(d_in) to both sides."""
    a = ts.LoRA(rank=30).init(SiteShape(100, 400, 1))["a"]
    assert a.shape == (30, 100)
    assert float(a.abs().max()) == pytest.approx(0.1, rel=0.01)
    assert float(a.std()) == pytest.approx(0.1 / 3**0.5, rel=0.05)
    assert abs(float(a.mean())) < 0.005


@pytest.mark.parametrize("gain", [False, True])
def test_dropout_takes_numbers_that_are_read_for_all_rows_and_for_each_of_its_own(gain: bool) -> None:
    eye, rows = torch.eye(40, dtype=torch.float64), torch.arange(1, 4, dtype=torch.float64)
    own = {"gain": torch.full((40,), 2.0), "shift": torch.full((40,), 5.0)} if gain else {}
    spec = ts.LoRA(rank=40, dropout=0.25, gain=gain)
    x, h = torch.full((3, 6, 40), 3.0, dtype=torch.float64), torch.full((3, 6, 40), 7.0, dtype=torch.float64)
    bare = 7.0 * 2 + 5 if gain else 7.0
    alike = {"a": eye, "b": eye} | own
    by_row = {"a": eye.expand(3, 40, 40), "b": rows[:, None, None] * eye}
    by_row |= {name: value.expand(3, 40) for name, value in own.items()}
    for made, scale in ((spec.apply(alike, x, h), torch.ones(3)), (spec.apply_by_row(by_row, x, h), rows)):
        for row, by in zip(made, scale.tolist(), strict=True):
            assert set(row.flatten().tolist()) == {bare, bare + by * 4.0}  # 3 / (1 - 0.25), or nothing
            assert float((row == bare).double().mean()) == pytest.approx(0.25, abs=0.1)


def test_lora_by_row_is_each_row_s_own_at_its_scale() -> None:
    draw = torch.Generator().manual_seed(0)
    spec = ts.LoRA(rank=2, alpha=5)
    p = {"a": torch.randn(3, 2, 7, generator=draw).double(), "b": torch.randn(3, 4, 2, generator=draw).double()}
    x, h = torch.randn(3, 6, 7, generator=draw).double(), torch.randn(3, 6, 4, generator=draw).double()
    expected = torch.stack([h[i] + 5 / 2 * x[i] @ p["a"][i].T @ p["b"][i].T for i in range(3)])
    torch.testing.assert_close(spec.apply_by_row(p, x, h), expected, rtol=0, atol=1e-12)
    half = spec.apply_by_row(p, x, h.float())
    torch.testing.assert_close(half.double(), expected, rtol=0, atol=1e-5)


@each
def test_deltas_of_one_site_act_in_the_order_given(family: str) -> None:
    model = tiny.make(family)
    given = texts(family)
    first, second = moved(model, "adapter:bottleneck=3+adapter:bottleneck=2,placement=parallel,norm=in")
    second.spec = ts.Adapter(bottleneck=2, norm="in")  # it reads h: what the first has made of it

    def change(site: str, x: Tensor, h: Tensor, query: Tensor | None) -> Tensor:
        if not site.endswith(".ffn"):
            return h
        for artifact in (first, second):
            stem = f"{site}:"
            p = {name.removeprefix(stem): t for name, t in artifact.tensors.items() if name.startswith(stem)}
            source = unified.layer_norm(h, p["norm"], p["norm_bias"]) if "norm" in p else h
            h = h + unified.bottleneck(source, p)
        return h

    with torch.no_grad():
        with ts.attach(model, first, second):
            got = tiny.output(model, given)
        torch.testing.assert_close(got, WRITTEN[family](model, given, change), rtol=0, atol=1e-11)


def test_training_goes_on_after_a_forward_pass_that_failed() -> None:
    model = tiny.make("gpt2")
    given = tiny.batch(model)
    with ts.attach(model, ts.Full()) as tuned:
        optimizer = torch.optim.SGD(tuned.train().parameters(), lr=0.1)
        with pytest.raises(IndexError):
            model(input_ids=torch.full((1, 3), tiny.VOCAB))
        outs = []
        for _ in range(2):
            optimizer.zero_grad()
            outs.append(tiny.output(model, given))
            outs[-1].square().mean().backward()
            optimizer.step()
    assert not torch.equal(outs[0], outs[1])


@pytest.mark.parametrize("site", ["attn", "attn.heads", "ffn"])
def test_a_low_rank_change_of_a_whole_block_is_no_change_of_one_weight_and_is_not_merged(site: str) -> None:
    model = tiny.make("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    (artifact,) = initialised(model, [ts.LoRA(rank=2, sites=(site,))], None, 0)
    with pytest.raises(
        ts.UserError, match=rf"acts on the whole block 'decoder.0.{site.replace('attn', 'self')}'.*keep it"
    ):
        ts.merge(model, artifact)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("arm", ["bias", "lora:rank=2,sites=attn.q,ffn.in"])
def test_a_change_that_lies_on_another_device_than_the_model_is_merged(arm: str) -> None:
    model = tiny.make("gpt2")
    artifacts = initialised(model, parse(arm), None, 0)
    ts.merge(model.to("meta"), *artifacts)  # torch refuses to add tensors of two devices, and meta is one
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


@torch.no_grad()
@pytest.mark.parametrize(("family", "shifts"), [("llama", set()), ("qwen2", {"q", "v"}), ("gpt2", {"q", "v", "out"})])
def test_a_gain_has_a_shift_where_the_map_has_a_bias_and_is_merged_everywhere(family: str, shifts: set[str]) -> None:
    model = tiny.make(family)
    (artifact,) = tiny.away(model, "lora:rank=2,gain=true,sites=attn.q,attn.v,ffn.out")
    names = {name.partition(":")[0].rpartition(".")[2] for name in artifact.tensors if name.endswith(":shift")}
    assert names == shifts
    given = tiny.batch(model)
    with ts.attach(model, artifact):
        expected = tiny.output(model, given)
    torch.testing.assert_close(tiny.output(ts.merge(model, artifact), given), expected, rtol=0, atol=1e-12)


def test_a_shift_of_a_map_without_a_bias_is_refused() -> None:
    model = tiny.make("llama")
    (artifact,) = tiny.away(model, "lora:rank=2,gain=true")
    artifact.tensors["decoder.0.self.q:shift"] = torch.zeros_like(artifact.tensors["decoder.0.self.q:gain"])
    with pytest.raises(ts.UserError, match=r"'decoder.0.self.q:shift' is \(.*\) and should be absent"):
        ts.merge(model, artifact)


@torch.no_grad()
def test_a_norm_in_front_of_a_parallel_adapter_is_as_wide_as_what_it_reads() -> None:
    model = tiny.make("llama")  # 24 wide, 40 in its feed-forward
    with ts.attach(model, ts.Adapter(bottleneck=2, placement="parallel", norm="in", sites=("ffn.in",))) as tuned:
        tiny.output(model, tiny.batch(model))
    assert {len(value) for name, value in tuned.artifacts[0].tensors.items() if name.endswith(":norm")} == {24}
