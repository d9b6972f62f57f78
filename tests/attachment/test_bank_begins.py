"""What a bank takes over from the call that attached it, from a folder, and from how `generate` is given its text."""

from pathlib import Path

import pytest
import tiny
import torch

import tunescope as ts
from tunescope.attachment.bank.banked import Banked
from tunescope.attachment.bank.member import Member


@pytest.mark.parametrize("seed", [0, 5])
def test_a_method_begins_in_a_bank_with_the_tensors_that_it_begins_with_alone_at_the_same_seed(seed: int) -> None:
    model, spec = tiny.make("gpt2"), ts.LoRA(rank=2)
    with ts.attach(model, spec, seed=seed) as tuned:
        alone = tuned.named_parameters()
    with ts.attach(model, ts.Bank({"anna": spec}), seed=seed) as banked:
        found = banked.named_parameters()
    assert found.keys() == {f"anna/{name}" for name in alone} and any(value.any() for value in alone.values())
    assert all(torch.equal(found[f"anna/{name}"], value) for name, value in alone.items())


@pytest.mark.parametrize("arm", ["text:text=w5 w6 w7 w8+reweight:anchors=1,2/3", "full"])
def test_what_no_row_can_have_to_itself_is_refused_also_when_a_batch_first_asks_for_its_folder(
    arm: str, tmp_path: Path
) -> None:
    model = tiny.make("gpt2")
    ts.save(tmp_path / "anna", tiny.away(model, arm, 0), model=model, tokenizer=tiny.tokenizer())
    with (
        ts.attach(model, ts.Bank.folder(tmp_path), tokenizer=tiny.tokenizer()),
        pytest.raises(ts.UserError, match=r"Bank: 'anna' holds .*(changes attention itself|a model of its own)"),
    ):
        model(**tiny.batch(model), rows=["anna", None])


def test_embeddings_that_generate_goes_on_from_are_counted_as_its_rows() -> None:
    model = tiny.make("gpt2")
    bank = ts.Bank({name: tiny.away(model, "lora:rank=2", seed) for seed, name in enumerate("ab")})
    embedded = model.get_input_embeddings()(tiny.ids(4)).detach()
    with ts.attach(model, bank), pytest.raises(ts.UserError, match=r"rows= names 2 rows, and the batch has 4\."):
        model.generate(inputs_embeds=embedded, rows=["a", "b"], max_new_tokens=1, do_sample=False)


def test_dropout_of_a_member_drops_while_it_trains_and_never_else() -> None:
    model, given = tiny.make("gpt2"), tiny.batch(tiny.make("gpt2"))
    artifacts = tiny.away(model, "lora:rank=4,dropout=0.5", 0)
    with ts.attach(model, *artifacts):
        alone = model(**given).logits
    with ts.attach(model, ts.Bank({"anna": artifacts})) as tuned:
        still = [model(**given, rows=["anna", name]).logits for name in ("anna", None)]
        tuned.train()
        dropped = [model(**given, rows=["anna", name]).logits for name in ("anna", "anna", None)]
        tuned.eval()
        after = model(**given, rows=["anna", None]).logits
    torch.testing.assert_close(still[0], alone, rtol=0, atol=1e-12)
    torch.testing.assert_close(after[0], alone[0], rtol=0, atol=1e-12)
    assert torch.equal(still[1], after)
    assert not any(torch.allclose(one[0], alone[0]) for one in dropped) and not torch.allclose(*dropped[:2])
    assert torch.equal(dropped[2][1], after[1])


def test_a_call_takes_a_name_for_each_row_and_a_block_may_have_several_rows_for_each() -> None:
    model, ids = tiny.make("gpt2"), tiny.ids(4)
    held = {name: tiny.away(model, "lora:rank=2", seed) for seed, name in enumerate("ab")}
    with ts.attach(model, ts.Bank(held)) as tuned, torch.no_grad():
        with pytest.raises(ts.UserError, match=r"^rows= names 2 rows, and the batch has 4\.$"):
            model(ids, rows=["a", "b"])
        each = model(ids, rows=["a", "a", "b", "b"]).logits
        with tuned.rows(["a", "b"]):
            assert torch.equal(model(ids).logits, each)
            inner = model(ids, rows=["b", "a", None, "a"]).logits  # what a call says goes before what the block says
            assert torch.equal(model(ids).logits, each)
        assert torch.equal(model(ids, rows=["b", "a", None, "a"]).logits, inner)


def test_deltas_of_one_shape_go_to_their_rows_in_whatever_order_names_come() -> None:
    model, rows = tiny.make("gpt2"), ["a", "b", "a", "c", "b"]
    held = {name: tiny.away(model, "lora:rank=2", seed) for seed, name in enumerate("abc")}
    ids = tiny.ids(len(rows))
    with ts.attach(model, ts.Bank(held)), torch.no_grad():
        together = model(ids, rows=rows).logits
    for index, name in enumerate(rows):
        with ts.attach(model, *held[name]), torch.no_grad():
            torch.testing.assert_close(together[index : index + 1], model(ids[index : index + 1]).logits)


@pytest.mark.parametrize(
    ("arm", "taken"), [("soft:length=4", 4), ("lora:rank=2", 0), ("text:text=w5 w6+soft:length=3", 5)]
)
def test_a_member_takes_as_many_positions_as_its_artifacts_alone(arm: str, taken: int) -> None:
    model = tiny.make("gpt2")
    artifacts = tiny.away(model, arm, 0)
    with ts.attach(model, *artifacts) as tuned:
        assert tuned.positions == taken
    with ts.attach(model, ts.Bank({"anna": artifacts, "ben": ts.Soft(length=9)})) as banked:
        assert isinstance(banked, Banked) and Member(banked, "anna").positions == taken


def test_what_was_lowered_is_no_parameter_of_a_bank_either() -> None:
    model = tiny.make("gpt2")
    lowered, lora = ts.lower(model, *tiny.away(model, "soft:length=3", 0)), tiny.away(model, "lora:rank=2", 1)
    with ts.attach(model, ts.Bank({"anna": lowered, "ben": lora})) as tuned:
        assert tuned.named_parameters().keys() == {f"ben/0.{name}" for name in lora[0].tensors}
