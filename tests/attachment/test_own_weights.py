"""While changed parameters stand in a model, what would be lost in them is refused, or told; the rest is as without."""

from contextlib import nullcontext
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor, nn

import tunescope as ts


def states(model: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def as_before(model: Any, before: dict[str, Tensor]) -> bool:
    now = states(model)
    return now.keys() == before.keys() and all(torch.equal(now[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    "put",
    [
        lambda model: model.resize_token_embeddings(110),
        lambda model: model.base_model.resize_token_embeddings(110),
        lambda model: model.set_input_embeddings(nn.Embedding(110, 24)),
        lambda model: model.set_output_embeddings(nn.Linear(24, 110)),
        lambda model: model.tie_weights(),
    ],
)
@pytest.mark.parametrize("family", ["llama", "gpt2"])  # the second has one table for words in and out
def test_other_embeddings_are_refused_where_these_stand_changed_and_are_put_again_behind(put: Any, family: str) -> None:
    model, other, text = tiny.make(family), tiny.make(family), tiny.ids(2)
    before = states(model)
    with ts.attach(model, *tiny.away(model, "full", 0)):
        changed, logits = states(model), model(text).logits
        with pytest.raises(ts.UserError, match=r"parameters stand changed by Full\(.*detach\(\), (resize|set|tie)_"):
            put(model)
        assert as_before(model, changed) and torch.equal(model(text).logits, logits)
        assert model.config.vocab_size == tiny.VOCAB
    assert as_before(model, before)
    for one in (model, other):
        torch.manual_seed(0)
        put(one)
    assert as_before(model, states(other))


@pytest.mark.parametrize("given", ["bias", "full:only=*norm*", "lora:rank=2"])
def test_embeddings_that_nothing_changes_are_made_larger_as_without(given: str) -> None:
    family = "gpt2" if given == "bias" else "llama"
    model, other, text = tiny.make(family), tiny.make(family), tiny.ids(2)
    torch.manual_seed(0)
    other.resize_token_embeddings(110)
    with ts.attach(model, *tiny.away(model, given, 0)):
        logits = model(text).logits
        torch.manual_seed(0)
        model.resize_token_embeddings(110)
        torch.testing.assert_close(model(text).logits[..., : tiny.VOCAB], logits)
    assert as_before(model, states(other)) and torch.equal(model(text).logits, other(text).logits)


@pytest.mark.parametrize(("family", "given"), [("llama", "full"), ("gpt2", "bias")])
@pytest.mark.parametrize("of", ["the model", "its base", "within registered()"])
def test_a_state_dict_is_not_loaded_into_what_stands_changed(family: str, given: str, of: str) -> None:
    model, other, text = tiny.make(family), tiny.make(family, seed=4), tiny.ids(2)
    before = states(model)
    tuned = ts.attach(model, *tiny.away(model, given, 0))
    logits = model(text).logits
    into, source = (model.base_model, other.base_model) if of == "its base" else (model, other)
    with (
        tuned.registered() if of == "within registered()" else nullcontext(),
        pytest.raises(ts.UserError, match=r"load_state_dict: .* detach\(\), load_state_dict, and attach again"),
    ):
        into.load_state_dict(source.state_dict())
    assert torch.equal(model(text).logits, logits)
    tuned.detach()
    assert as_before(model, before)
    into.load_state_dict(source.state_dict())
    assert as_before(into, states(source))


@pytest.mark.parametrize("given", ["full", "bias"])
def test_a_whole_state_dict_with_what_is_registered_in_it_brings_that_back(given: str) -> None:
    model, text = tiny.make("gpt2"), tiny.ids(2)
    before = states(model)
    with ts.attach(model, *tiny.away(model, given, 0)) as tuned, tuned.registered():
        state, logits = states(model), model(text).logits.detach()
        with torch.no_grad():
            for value in tuned.parameters():
                value.add_(1)
        model.load_state_dict(state)
        assert as_before(model, state) and torch.equal(model(text).logits, logits)
    assert as_before(model, before)


def written(model: Any) -> None:
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.bias.mul_(1.1)


LOST = r"'h.0.mlp.c_fc.bias' of the model was written into while .* stands changed there, and that is lost. detach\(\)"


@pytest.mark.parametrize("given", ["full", "bias"])
@pytest.mark.parametrize("then", ["a pass", "a state dict", "in_place()", "detach()"])
def test_what_is_written_into_what_stands_changed_is_not_lost_without_a_word(given: str, then: str) -> None:
    model, text = tiny.make("gpt2"), tiny.ids(2)
    before, tuned = states(model), ts.attach(model, *tiny.away(model, given, 0))
    logits = model(text).logits
    written(model)
    assert not torch.equal(model(text).logits, logits)  # so far it acts
    with torch.no_grad():
        for value in tuned.parameters():
            value.mul_(2)
    changes = [value.clone() for value in tuned.parameters()]
    if then == "detach()" or (given, then) == ("bias", "in_place()"):  # of Full alone
        with pytest.warns(ts.errors.Note, match=LOST):
            tuned.detach()
    else:
        with pytest.raises(ts.UserError, match=LOST), tuned.in_place() if then == "in_place()" else nullcontext():
            model(text) if then == "a pass" else model.state_dict()
        with pytest.warns(ts.errors.Note, match=LOST):
            tuned.detach()
    assert all(map(torch.equal, tuned.parameters(), changes))
    assert as_before(model, before)


def test_nor_while_it_is_tuned() -> None:
    model, text = tiny.make("gpt2"), tiny.ids(2)
    tuned = ts.attach(model, ts.Full()).train()
    model(text)
    written(model)
    with pytest.raises(ts.UserError, match=LOST):
        model(text)
    with pytest.warns(ts.errors.Note, match=LOST):
        tuned.detach()


def test_what_is_there_already_may_be_written_and_what_nothing_changes_stays_written() -> None:
    model, other, text = tiny.make("gpt2"), tiny.make("gpt2"), tiny.ids(2)
    with ts.attach(model, ts.Bias()) as tuned:
        tuned.train()
        for one in (model, other):
            with torch.no_grad():
                one.transformer.h[0].mlp.c_fc.weight.mul_(1.1)
                one.transformer.h[0].mlp.c_fc.bias.copy_(one.transformer.h[0].mlp.c_fc.bias.clone())  # as DDP does
        torch.testing.assert_close(model(text).logits, other(text).logits)
    assert as_before(model, states(other))
