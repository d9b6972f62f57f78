"""Arms as strings: what is typed, what it means, and what is said of what cannot be meant."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tunescope as ts
from tunescope.methods.text_form import FOLDERS, explicit, methods, name_of, parse, show
from tunescope.system import plugins


def test_a_file_is_a_method_and_its_name_is_the_file_s() -> None:
    folders = {name: folder for folder in FOLDERS for name in plugins.names(folder)}
    assert set(methods()) == set(folders)
    for name, method in methods().items():
        assert name_of(method) == name
        assert method.__module__ == f"tunescope.{folders[name]}.{name}"
    assert methods()["lora"] is ts.LoRA


def test_an_arm_is_the_constructor_call() -> None:
    assert parse("lora") == (ts.LoRA(),)
    assert parse("lora:rank=4") == (ts.LoRA(rank=4),)
    assert parse("lora:rank=4,sites=attn.q,attn.v,ffn.in,alpha=8") == (
        ts.LoRA(rank=4, sites=("attn.q", "attn.v", "ffn.in"), alpha=8.0),
    )
    assert parse("prefix:length=30+adapter:bottleneck=512,placement=parallel,scale=4.0") == (
        ts.Prefix(length=30),
        ts.Adapter(bottleneck=512, placement="parallel", scale=4.0),
    )
    assert parse("adapter:scale=learned") == (ts.Adapter(scale="learned"),)
    assert parse("prefix:mlp=None") == parse("prefix")
    assert parse("text:text=Is it good, or bad? a=1, 1+1+soft:length=2") == (
        ts.Text(text="Is it good, or bad? a=1, 1+1"),
        ts.Soft(length=2),
    )


def test_the_fields_that_were_set_are_known() -> None:
    assert explicit("lora:rank=4,sites=attn.q,attn.v+prefix+soft:length=3") == [{"rank", "sites"}, set(), {"length"}]


def test_a_field_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ts.UserError, match="Arm 'lora:rank=4,rank=8' has the field 'rank' twice; give it once"):
        parse("lora:rank=4,rank=8")


@pytest.mark.parametrize("name", methods())
def test_what_is_shown_can_be_typed(name: str) -> None:
    assert show(parse(name)) == name
    assert show((methods()[name](),)) == name


PIECES = [*"abz 019.,=+:\\'\"/\n", "lora", "+lora", ",text=", "+soft:length=3", "\\,", "None"]
WORDS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
SPECS = st.one_of(
    st.builds(ts.LoRA, rank=st.integers(1, 99), alpha=st.none() | st.floats(0.1, 99), dropout=st.floats(0, 0.9)),
    st.builds(ts.LoRA, sites=st.lists(st.sampled_from(["attn.q", "ffn.in", "encoder.ffn"]), min_size=1).map(tuple)),
    st.builds(ts.Adapter, scale=st.just("learned") | st.floats(0.1, 9), sites=st.just(("ffn", "attn"))),
    st.builds(ts.Prefix, length=st.integers(1, 500), mlp=st.none() | st.integers(1, 900)),
    st.builds(ts.Prefix, init_from=st.sampled_from(["noise", "text", "tokens", "zero"]), text=WORDS),
    st.builds(ts.Text, text=WORDS),
    st.builds(ts.Soft, length=st.integers(1, 9), init_from=st.just("labels"), text=WORDS),
)


@given(st.lists(SPECS, min_size=1, max_size=3))
def test_parse_undoes_show(specs: Any) -> None:
    assert parse(show(specs)) == tuple(specs)


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("loar", "no method 'loar'. Did you mean 'lora'. Methods: anchors, infix, inputs, prefix, soft, text, adapter"),
        ("prefix+adaptor", "no method 'adaptor'. Did you mean 'adapter'. Methods: anchors, infix"),
        ("zzzz", "no method 'zzzz'. Methods: "),
        ("pez+lora", "'pez' is a search, which stands alone as an arm and joins none"),
        ("", "no method ''"),
        ("lora:rnak=4", "'lora' has no field 'rnak'. Did you mean 'rank'. Its fields: rank, alpha, dropout, sites"),
        ("bias:rank=4", "'bias' has no field 'rank'. Its fields: none"),
        ("lora:4", "'4' is no field=value. Write it as in lora:rank=4,sites=attn.q,attn.v"),
        ("lora:rank=four", "Arm field 'lora:rank=four': input should be a valid integer"),
        ("lora:rank=4,8", "Arm field 'lora:rank=4,8'"),
        ("adapter:placement=above", "input should be 'sequential', 'parallel' or 'multi-head'"),
        ("adapter:scale=big", "Arm field 'adapter:scale=big'"),
        ("lora+", "no method"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(arm: str, message: str) -> None:
    with pytest.raises(ts.UserError, match=message.replace("?", ".")):
        parse(arm)


@pytest.mark.parametrize("method", methods().values())
def test_every_method_says_its_grid_its_size_and_its_defaults(method: Any) -> None:
    grid = method.learning_rates
    assert len(grid) == 3
    assert list(grid) == sorted(grid)
    assert method.size is None or method.size in {field.name for field in fields(method)}
    assert method.__doc__


def test_the_public_names_are_there_and_few() -> None:
    assert len(set(ts.__all__) - {"__version__"}) <= 26  # the methods, and a verb for each thing that is done with them
    for name in ts.__all__:
        if name != "compare":
            assert getattr(ts, name) is not None
    assert set(dir(ts)) == set(ts.__all__)  # what a notebook completes
    with pytest.raises(AttributeError, match="has no attribute 'Lora'; it has: Adapter, "):
        ts.Lora  # noqa: B018
