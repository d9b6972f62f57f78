"""What every artifact promises on every family. A new file in contexts/, deltas/ or families/ is run unasked."""

import copy
import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from torch import Tensor
from traces import assert_no_trace, trace

import tunescope as ts
from tunescope.attachment import attached
from tunescope.attachment.initial_artifacts import initialised
from tunescope.attachment.merge import can_merge
from tunescope.methods.artifact import Artifact, Context, Spec, TokenContext
from tunescope.methods.text_form import methods, parse
from tunescope.models.anatomy import kind
from tunescope.models.family import family_names, find_family

# More arms than the default constructor of each method; no method need be in these lists. The first reach other places
# of a model, or stand at other positions, and are run on every family. What the others set acts on their own tensors,
# at the same places: they are run on SOME.
VARIANTS = {
    "prefix": ("prefix:length=2,positions=after", "prefix:length=3,init_from=tokens"),
    "text": ("text:text=w5 w6 w7 w8",),
    "anchors": ("anchors:text=w5 w6 w7 w8 w9,length=5,keep=1,4",),
    "lora": ("lora:rank=2,alpha=3,sites=attn.k,attn.o,ffn.in,ffn.out",),
    "adapter": (
        "adapter:bottleneck=3,sites=attn,ffn,norm=in",
        "adapter:bottleneck=3,placement=parallel,sites=attn.heads,norm=out,scale=learned",
        "adapter:bottleneck=3,sites=attn,ffn,source=stream",
    ),
    "head": ("head:n_labels=3", "head:n_labels=3,pooler=true"),
    "reweight": ("text:text=w5 w6 w7 w8+reweight:anchors=1,2/3",),
}
SETTINGS = {
    "prefix": (
        "prefix:length=3,mlp=5",
        "prefix:length=2,mlp=3,positions=after",
        "prefix:length=2,init_from=text,text=w5 w6 w7",
        "prefix:length=2,init_from=zero",
    ),
    "soft": (
        "soft:length=3,init_from=normal",
        "soft:length=3,init_from=text,text=w4 w5",
        "soft:length=3,init_from=labels,text=w4 w5/w6",
    ),
    "infix": ("infix:length=2", "infix:length=2,mlp=3"),
    "anchors": (
        "anchors:text=w5 w6 w7 w8 w9,length=5,keep=0,2,3,positions=packed",
        "anchors:text=w5 w6 w7 w8 w9,length=5,keep=2,positions=zero",
    ),
    "adapter": (
        "adapter:bottleneck=3,placement=parallel,scale=4.0",
        "adapter:bottleneck=3,placement=multi-head,sites=attn.heads",
        "adapter:bottleneck=3,placement=multi-head,sites=attn.heads,activation=softmax",
        "adapter:bottleneck=3,sites=ffn.out,start=bert",
        "adapter:bottleneck=3,sites=attn,ffn,source=stream,placement=parallel",
    ),
    "reweight": ("text:text=w5 w6 w7 w8+reweight:anchors=1/2,3,form=bias",),
    "head": (
        "head:n_labels=3,token=last,bias=false",
        "head:n_labels=3,token=every",
        "head:n_labels=3,dense=tanh",
    ),
    "full": ("full:only=*.1.*",),
    "lora": ("lora:rank=2,gain=true,sites=attn.q,attn.v,ffn.out",),
}
KINDS = ("gpt2", "bert", "t5")
SOME = (
    *KINDS,
    "llama",
    "gemma2",
    "bart",
)  # rotary and grouped; windows, soft caps, norms behind; unlike cross-attention
FAMILIES = family_names()
NO_BIAS = ("llama", "mistral", "qwen3", "gemma2", "t5")
NO_STREAM = ("gemma2", "gpt_neox", "opt", "phi")  # norms on both sides, blocks side by side, or as the config says


def is_refused(arm: str, family: str) -> bool:
    """The refusals that are meant: anything else that refuses is a failure."""
    which = find_family(family).kind
    return (
        arm in ("text", "anchors")  # their default is no words at all
        or (arm.startswith("anchors") and which != "decoder")
        or (arm.startswith("infix") and which != "decoder")
        or ("positions=after" in arm and which == "encoder-decoder")
        or (arm.startswith("head") and which != "encoder")
        or ("pooler" in arm and family == "distilbert")
        or (arm == "bias" and family in NO_BIAS)
        or arm == "reweight"  # its default has no demonstrations to act on
        or ("reweight" in arm and which == "encoder")
        or ("stream" in arm and family in NO_STREAM)
    )


ARMS = [arm for name in methods() for arm in (name, *VARIANTS.get(name, ()), *SETTINGS.get(name, ()))]
OF_SOME = {arm for arms in SETTINGS.values() for arm in arms}
PAIRS = [
    (family, arm)
    for family in FAMILIES
    for arm in ARMS
    if not is_refused(arm, family) and (family in SOME or arm not in OF_SOME)
]
REFUSED = [(family, arm) for family in FAMILIES for arm in ARMS if is_refused(arm, family)]


def of(wanted: Callable[[str, Sequence[Spec]], bool]) -> pytest.MarkDecorator:
    """The pairs whose family and specs are wanted."""
    return pytest.mark.parametrize(
        ("family", "arm"), [(family, arm) for family, arm in PAIRS if wanted(family, parse(arm))]
    )


every = of(lambda family, specs: True)
# What is done for each method alike: every setting on a family of each kind, and each method as it is on every family.
OF_EACH_KIND = [pair for pair in PAIRS if pair[0] in KINDS or ":" not in pair[1]]
each_kind = pytest.mark.parametrize(("family", "arm"), OF_EACH_KIND)


@cache
def made_away(family: str, arm: str) -> list[Artifact]:
    """The arm's artifacts on the family, away from where they start, so that no gradient is zero by construction."""
    artifacts = made(tiny.make(family), arm)
    generator = torch.Generator().manual_seed(3)
    for artifact in artifacts:
        for name, value in artifact.tensors.items():
            if value.is_floating_point():
                noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
                artifact.tensors[name] = value + 0.1 * noise
    return artifacts


def away(family: str, arm: str) -> list[Artifact]:
    """The same with tensors of their own."""
    copies = ({name: value.clone() for name, value in one.tensors.items()} for one in made_away(family, arm))
    return [replace(one, tensors=tensors) for one, tensors in zip(made_away(family, arm), copies, strict=True)]


def made(model: Any, arm: str) -> list[Artifact]:
    """The arm's artifacts as they start."""
    try:
        return initialised(model, parse(arm), tiny.tokenizer(), 0)
    except ts.UserError as refusal:
        if arm in methods() and arm not in {*VARIANTS, *SETTINGS, "bias", "inputs"}:
            pytest.skip(f"{arm}: {refusal}")
        raise


def is_folded(spec: Spec) -> bool:
    return isinstance(spec, Context) and spec.folded() != spec


def is_context(artifact: Artifact) -> bool:
    return isinstance(artifact.spec, Context)


def given_to(model: Any, tuned: Any, padding: str = "right") -> dict[str, Tensor]:
    given = tiny.batch(model, padding)
    if tuned.wants_output_start:
        given["output_start"] = torch.tensor([3, 2])
    return given


def outputs(model: Any, given: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in model(**given).items() if isinstance(value, Tensor)}


@every
def test_fresh_it_changes_nothing_unless_declared_and_leaves_no_trace(family: str, arm: str) -> None:
    model = tiny.make(family)
    given = tiny.batch(model)
    with torch.no_grad():
        plain = outputs(model, given)
        before = trace(model)
        with ts.attach(model, *made(model, arm)) as tuned:
            inside = outputs(model, given_to(model, tuned))
            assert not any(parameter.requires_grad for parameter in model.parameters())
        after = outputs(model, given)
    is_identity = all(artifact.spec.fresh_is_identity for artifact in tuned.artifacts)
    same = all(torch.equal(value, inside[name]) for name, value in plain.items())
    assert same == is_identity
    assert plain.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in plain.items())
    assert_no_trace(model, before)


@pytest.mark.parametrize(
    ("family", "arm"),
    [
        (family, arm)
        for family, arm in PAIRS
        if (family in SOME or ":" not in arm) and not all(one.bound or isinstance(one, ts.Text) for one in parse(arm))
    ],
)
def test_gradients_are_exact_reach_all_of_it_and_nothing_else_checkpointed_or_not(family: str, arm: str) -> None:
    model = tiny.make(family)
    artifacts = away(family, arm)
    gradients = []
    for is_checkpointed in (False, True):
        if is_checkpointed:
            model.train().gradient_checkpointing_enable()
        with ts.attach(model, *artifacts) as tuned:
            tuned.train()
            given = given_to(model, tuned)
            loss(model, given).backward()
            assert all(p.grad is None for p in model.parameters() if p.is_leaf)
            gradients.append({name: leaf.grad for name, leaf in tuned.named_parameters().items()})
            for name, gradient in gradients[-1].items():
                assert gradient is not None, name
                assert gradient.abs().max() > 0, name
            for leaf in tuned.parameters():
                leaf.grad = None
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=0, atol=1e-12, msg=name)
    if (family, arm) in OF_EACH_KIND:
        check_finite_differences(tiny.make(family), artifacts, gradients[0])


def loss(model: Any, given: dict[str, Tensor]) -> Tensor:
    out = tiny.real(given, tiny.output(model, given))
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)
    return (out * weights).sum() / out.numel() ** 0.5


def check_finite_differences(model: Any, artifacts: list[Artifact], gradients: dict[str, Tensor]) -> None:
    """One random entry of a tensor of every group (the same tensor in other layers is the same group)."""
    step = 1e-5
    generator = torch.Generator().manual_seed(7)
    groups = {"".join(c for c in name if not c.isdigit()): name for name in gradients}
    with ts.attach(model, *artifacts) as tuned, torch.no_grad(), tiny.Float64():
        given, leaves = given_to(model, tuned), tuned.named_parameters()
        for name in groups.values():
            entry = int(gradients[name].abs().flatten().multinomial(1, generator=generator))
            index = torch.unravel_index(torch.tensor(entry), gradients[name].shape)
            kept, sides = float(leaves[name][index]), []
            for sign in (1, -1):
                leaves[name][index] = kept + sign * step
                sides.append(float(loss(model, given)))
            leaves[name][index] = kept
            slope = (sides[0] - sides[1]) / (2 * step)
            assert slope == pytest.approx(float(gradients[name][index]), rel=1e-5, abs=1e-6), name


@each_kind
def test_saved_and_loaded_it_gives_equal_outputs(family: str, arm: str, tmp_path: Any) -> None:
    model = tiny.make(family)
    with ts.attach(model, *away(family, arm)) as tuned, torch.no_grad():
        given = given_to(model, tuned)
        expected = outputs(model, given)
        ts.save(tmp_path / "saved", tuned.artifacts, model=model, tokenizer=tiny.tokenizer())
    with ts.attach(model, *ts.load(tmp_path / "saved"), tokenizer=tiny.tokenizer()) as again, torch.no_grad():
        got = outputs(model, given)
    assert [artifact.spec for artifact in again.artifacts] == [artifact.spec for artifact in tuned.artifacts]
    assert all(torch.equal(value, got[name]) for name, value in expected.items())


@of(lambda family, specs: family in KINDS or any(is_folded(spec) for spec in specs))
def test_folded_for_inference_it_gives_the_same_outputs(family: str, arm: str) -> None:
    model = tiny.make(family)
    artifacts = away(family, arm)
    with torch.no_grad():
        with ts.attach(model, *artifacts) as tuned:
            given = given_to(model, tuned)
            expected = outputs(model, given)
        with ts.attach(model, *(artifact.fold() for artifact in artifacts)) as folded:
            got = outputs(model, given)
    assert folded.positions == tuned.positions
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=0, atol=1e-12)


@of(lambda family, specs: family in KINDS or all(can_merge(spec) for spec in specs))
def test_merged_it_equals_the_attached_or_is_refused_untouched(family: str, arm: str) -> None:
    model = tiny.make(family)
    artifacts = away(family, arm)
    before = trace(model)
    if not all(can_merge(artifact.spec) for artifact in artifacts):
        mergeable = initialised(model, [ts.Full()], None, 0)
        mergeable[0].tensors = {name: value + 1 for name, value in mergeable[0].tensors.items()}
        with pytest.raises(ts.UserError, match="cannot be merged: keep it attached"):
            ts.merge(model, *mergeable, *artifacts)
        assert_no_trace(model, before)
        return
    given = tiny.batch(model)
    with torch.no_grad():
        with ts.attach(model, *artifacts):
            expected = outputs(model, given)
        got = outputs(ts.merge(model, *artifacts), given)
    for name, value in expected.items():
        if name != "pooler_output":
            torch.testing.assert_close(got[name], value, rtol=0, atol=1e-12)
    assert trace(model)["objects"] == before["objects"]


@of(lambda family, specs: any(isinstance(spec, TokenContext) for spec in specs))
def test_a_token_context_equals_its_lowered_form_or_lower_refuses(family: str, arm: str) -> None:
    model = tiny.make(family)
    artifacts = away(family, arm)
    if kind(model) != "decoder":
        with pytest.raises(ts.UserError, match=r"cannot be lowered .* Attach it as it is, or use a prefix"):
            ts.lower(model, *artifacts)
        return
    given = tiny.batch(model)
    with torch.no_grad():
        with ts.attach(model, *artifacts) as tuned:
            expected = tiny.real(given, tiny.output(model, given))
        before = trace(model)
        lowered = ts.lower(model, *artifacts)
        assert_no_trace(model, before)
        with ts.attach(model, *lowered) as low:
            got = tiny.real(given, tiny.output(model, given))
    assert (
        low.positions == tuned.positions == sum(len(next(iter(a.tensors.values()))) for a in artifacts if is_context(a))
    )
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("family", "arm"), REFUSED)
def test_what_does_not_fit_the_family_is_refused_and_leaves_no_trace(family: str, arm: str) -> None:
    model = tiny.make(family)
    before = trace(model)
    with pytest.raises(ts.UserError):
        ts.attach(model, *parse(arm), tokenizer=tiny.tokenizer())
    assert_no_trace(model, before)


@each_kind
def test_an_exception_inside_the_block_leaves_no_trace(family: str, arm: str) -> None:
    model = tiny.make(family)
    given = tiny.batch(model)
    artifacts = away(family, arm)
    with torch.no_grad():
        plain = outputs(model, given)
        before = trace(model)
        with suppress(IndexError), ts.attach(model, *artifacts) as tuned:
            inside = outputs(model, given_to(model, tuned))
            broken = given_to(model, tuned)
            broken["input_ids"] = torch.full_like(given["input_ids"], tiny.VOCAB)
            with pytest.raises(IndexError, match="out of range"):
                model(**broken)
            again = outputs(model, given_to(model, tuned))
            assert all(torch.equal(value, again[name]) for name, value in inside.items())
            model(**broken)
        assert_no_trace(model, before)
        assert all(torch.equal(value, outputs(model, given)[name]) for name, value in plain.items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("step", ["frozen", "patched", "acting", "placed", "check_in_force"])
def test_an_exception_inside_attach_leaves_no_trace(family: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.make(family)
    before = trace(model)

    def breaking(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(attached, step, breaking)
    with pytest.raises(KeyboardInterrupt):
        ts.attach(model, ts.Full(), ts.LoRA(rank=2), ts.Adapter(bottleneck=2), ts.Soft(length=2), ts.Prefix(length=2))
    assert_no_trace(model, before)


@pytest.mark.parametrize("attention", ["eager", None])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_attention_in_use_before_is_in_use_after(family: str, attention: str | None) -> None:
    model = tiny.make(family, attention=attention)
    model.train()
    next(iter(model.base_model.children())).eval()
    next(model.parameters()).requires_grad_(False)
    before = trace(model)
    assert set(before["attention"].values()) <= {attention or "sdpa", "eager"}
    with ts.attach(model, ts.Prefix(length=2), ts.Full(), ts.LoRA(rank=2)) as tuned:
        tuned.train()
        tiny.output(model, tiny.batch(model)).sum().backward()
    assert_no_trace(model, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_lora_and_adapter_train_together_and_save_in_one_folder(family: str, tmp_path: Any) -> None:
    model = tiny.make(family)
    given = tiny.batch(model)
    with ts.attach(model, ts.Prefix(length=3), ts.LoRA(rank=2), ts.Adapter(bottleneck=3)) as tuned:
        optimizer = torch.optim.SGD(tuned.train().parameters(), lr=0.1)
        start = {name: value.detach().clone() for name, value in tuned.named_parameters().items()}
        for _ in range(2):  # what starts behind a zero moves from the second step on
            optimizer.zero_grad()
            loss(model, given).backward()
            optimizer.step()
        assert all(not torch.equal(value, start[name]) for name, value in tuned.named_parameters().items())
        with torch.no_grad():
            expected = tiny.output(model, given)
        ts.save(tmp_path / "all", tuned.artifacts, model=model)
    with ts.attach(model, *ts.load(tmp_path / "all")), torch.no_grad():
        assert torch.equal(tiny.output(model, given), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_deltas_side_by_side_commute_and_one_after_the_other_do_not(family: str) -> None:
    model = tiny.make(family)
    given = tiny.batch(model)

    def swapped_difference(first: str, second: str) -> float:
        both = [*away(family, first), *away(family, second)]
        outs = []
        for order in (both, both[::-1]):
            with ts.attach(model, *order), torch.no_grad():
                outs.append(tiny.real(given, tiny.output(model, given)))
        return float((outs[0] - outs[1]).abs().max())

    parallel = "adapter:bottleneck=3,placement=parallel"
    assert swapped_difference("lora:rank=2", "lora:rank=3,sites=attn.q,ffn.in") <= 1e-12
    assert swapped_difference(parallel, "adapter:bottleneck=2,placement=parallel,scale=2.0") <= 1e-12
    assert swapped_difference("lora:rank=2,sites=ffn.out", "adapter:bottleneck=2") <= 1e-12  # linear maps act first
    assert swapped_difference("adapter:bottleneck=3", "adapter:bottleneck=2,sites=ffn,attn") > 1e-6
    assert swapped_difference(parallel, "adapter:bottleneck=2") > 1e-6
    assert swapped_difference("full", "bias" if family not in NO_BIAS else "full") <= 1e-12


@pytest.mark.parametrize("family", [name for name in FAMILIES if find_family(name).kind == "decoder"])
def test_the_order_of_contexts_is_the_order_in_which_they_stand(family: str) -> None:
    model = tiny.make(family)
    words, soft = Artifact(ts.Text(text="w"), {"ids": tiny.ids(1, 3)[0]}), away(family, "soft:length=2")[0]
    with torch.no_grad():
        joined = torch.cat([model.get_input_embeddings()(words.tensors["ids"]), soft.tensors["embeddings"]])
        for order, expected in (([words, soft], joined), ([soft, words], joined[[3, 4, 0, 1, 2]])):
            whole = Artifact(ts.Soft(length=5), {"embeddings": expected})
            with ts.attach(model, *order):
                got = tiny.output(model, tiny.batch(model, "none"))
            with ts.attach(model, whole):
                torch.testing.assert_close(tiny.output(model, tiny.batch(model, "none")), got, rtol=0, atol=1e-12)


def test_every_method_of_the_folders_is_here() -> None:
    assert {arm.partition(":")[0] for arm in ARMS} == set(methods())
    assert set(FAMILIES) == set(tiny.configs())
    assert any(issubclass(method, Context) for method in methods().values())


def test_what_is_attached_stays_attached_when_its_handle_is_dropped() -> None:
    model = tiny.make("gpt2")
    given = {"input_ids": tiny.ids(2, 7)}
    plain = outputs(model, given)
    ts.attach(model, ts.Prefix(length=3))
    gc.collect()
    assert not torch.equal(outputs(model, given)["logits"], plain["logits"])
    with pytest.raises(ts.UserError, match="attached already"):
        ts.attach(model, ts.Prefix(length=3))


def test_what_is_attached_says_what_it_is_and_how_many_parameters_it_has() -> None:
    model = tiny.make("llama")
    beside = sum(value.numel() for value in model.parameters())
    tuned = ts.attach(model, ts.LoRA(rank=2), ts.Full())
    own = sum(value.numel() for value in tuned.parameters())
    lora = repr(ts.LoRA(rank=2))
    told = f"LlamaForCausalLM: {lora}, {ts.Full()}; {own:,} parameters to tune beside the model's {beside:,}>"
    assert repr(tuned) == f"<Attached to {told}"
    values = own - beside
    assert (
        repr(tuned.artifacts[0]) == f"<Artifact {lora}: {values:,} values in {len(tuned.artifacts[0].tensors)} tensors>"
    )
    tuned.detach()
    assert repr(tuned) == f"<Detached from {told}"


@pytest.mark.parametrize("arm", ["lora:rank=2", "prefix:length=2", "full+soft:length=2"])
def test_a_model_does_not_lose_what_is_attached_by_being_saved_or_copied(arm: str, tmp_path: Path) -> None:
    model = tiny.make("llama")
    with ts.attach(model, *parse(arm)) as tuned:
        with pytest.raises(ts.UserError, match="would save this LlamaForCausalLM without what is attached"):
            model.save_pretrained(tmp_path)
        with tuned.registered():
            model.save_pretrained(tmp_path / "registered")
        with pytest.raises(ts.UserError, match="detach"):
            model.save_pretrained(tmp_path)
        with pytest.raises(ts.UserError, match="has artifacts attached and cannot be copied or pickled so: detach"):
            copy.deepcopy(model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["registered"]
    model.save_pretrained(tmp_path / "bare")
    assert (tmp_path / "bare/config.json").exists() and not {"save_pretrained", "__deepcopy__"} & model.__dict__.keys()
    assert type(copy.deepcopy(model)) is type(model)


@pytest.mark.parametrize("way", ["full", "in_place", "bias"])
def test_what_is_tuned_in_the_model_s_own_parameters_is_saved_with_them(way: str, tmp_path: Path) -> None:
    model = tiny.make("gpt2", dtype=torch.bfloat16 if way == "in_place" else torch.float32)
    given = tiny.batch(model)
    tuned = ts.attach(model, ts.Bias() if way == "bias" else ts.Full())
    with tuned, tuned.in_place() if way == "in_place" else nullcontext():
        optimizer = torch.optim.AdamW(tuned.train().parameters(), lr=0.01)
        model(**given, labels=given["input_ids"]).loss.backward()
        optimizer.step()
        model.save_pretrained(tmp_path)  # no pass was made since the step
        base = {name: value.clone() for name, value in model.base_model.state_dict().items()}
        with torch.no_grad():
            expected = model(**given).logits
    again = type(model).from_pretrained(tmp_path, dtype=model.dtype).eval()
    assert torch.equal(again(**given).logits, expected)
    assert all(torch.equal(value, base[name]) for name, value in again.base_model.state_dict().items())
    with pytest.raises(AssertionError):
        torch.testing.assert_close(model(**given).logits, expected)


def test_a_model_with_a_bank_is_not_saved_without_it(tmp_path: Path) -> None:
    model = tiny.make("llama")
    bank = ts.attach(model, ts.Bank({"anna": ts.LoRA(rank=2)}))
    with pytest.raises(ts.UserError, match="without what is attached"):
        model.save_pretrained(tmp_path)
    bank.detach()
    assert not any(name.startswith("_tunescope") or name == "save_pretrained" for name in model.__dict__)


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_another_attention_set_while_a_context_is_attached_is_refused_for_it_would_not_see_it(family: str) -> None:
    model = tiny.make(family)
    given = tiny.batch(model)
    before = model.config._attn_implementation
    with ts.attach(model, *tiny.away(model, "prefix:length=2")):
        expected = tiny.output(model, given)
        model.set_attn_implementation("eager")
        with pytest.raises(ts.UserError, match="attention was set to 'eager' since, which does not see it"):
            tiny.output(model, given)
        model.set_attn_implementation("tunescope")
        torch.testing.assert_close(tiny.output(model, given), expected, rtol=0, atol=0)
    assert model.config._attn_implementation == before


@pytest.mark.parametrize("arm", ["prefix:length=2", "lora:rank=2", "adapter:bottleneck=3"])
def test_the_encoder_of_an_encoder_decoder_alone_is_as_within_the_whole(arm: str) -> None:
    whole = tiny.make("t5")
    given = {name: value for name, value in tiny.batch(whole).items() if not name.startswith("decoder")}
    alone = transformers.T5EncoderModel(tiny.configs()["t5"]).to(torch.float64).eval()
    alone.load_state_dict({name: whole.state_dict()[name] for name in alone.state_dict()})
    (both,) = tiny.away(whole, arm)
    (half,) = tiny.away(alone, arm)
    half.tensors = {name: both.tensors[name] for name in half.tensors}
    assert all(name.startswith("encoder.") for name in half.tensors)
    with ts.attach(whole, both), torch.no_grad():
        expected = whole(**tiny.batch(whole)).encoder_last_hidden_state
    with ts.attach(alone, half), torch.no_grad():
        got = alone(**given).last_hidden_state
        bare = whole.get_encoder()(**given).last_hidden_state
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert (got - bare).abs().max() > 1e-3


def test_the_decoder_of_an_encoder_decoder_alone_is_refused() -> None:
    alone = transformers.BartForCausalLM(tiny.configs()["bart"])
    for spec in (ts.Prefix(length=2), ts.LoRA(rank=2), ts.Soft(length=2)):
        with pytest.raises(ts.UserError, match="A BartForCausalLM is the decoder of an encoder-decoder alone"):
            ts.attach(alone, spec)


@pytest.mark.parametrize(("name", "family"), [("BartForCausalLM", "bart"), ("T5EncoderModel", "t5")])
def test_full_tuning_needs_no_map_of_half_a_model(name: str, family: str) -> None:
    alone, other = (getattr(transformers, name)(tiny.configs()[family]).to(torch.float64).eval() for _ in range(2))
    other.load_state_dict(alone.state_dict())
    ids = torch.tensor([[5, 6, 7, 2]])
    with torch.no_grad(), ts.attach(alone, ts.Full()) as tuned:
        for key, value in tuned.named_parameters().items():
            value.add_(0.1)
            other.base_model.get_parameter(key.removeprefix("0.")).add_(0.1)
        torch.testing.assert_close(alone(input_ids=ids)[0], other(input_ids=ids)[0], rtol=0, atol=1e-12)
