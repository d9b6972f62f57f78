"""RoBERTa and its kin count the ids of a text but their padding's, wherever one stands: so they do behind a context."""

from typing import Any

import pytest
import torch
import transformers as tf
from torch import Tensor

import tunescope as ts

PAD = 1
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 40, "pad_token_id": PAD,
}  # fmt: skip
MODELS: dict[str, tuple[Any, Any]] = {
    "roberta": (tf.RobertaModel, tf.RobertaConfig),
    "xlm-roberta": (tf.XLMRobertaModel, tf.XLMRobertaConfig),
    "camembert": (tf.CamembertModel, tf.CamembertConfig),
}
WORDS = torch.tensor([20, 21, 22])
TEXTS = {"within": [5, 6, PAD, 7, 8, 9], "at the end": [5, 6, 7, 8, PAD, PAD], "nowhere": [5, 6, 7, 8, 9, 10]}


def made(name: str) -> Any:
    kind, config = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(config(**SIZES)).double().eval()


def states(model: Any, **given: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(**given).last_hidden_state
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", MODELS)
def test_a_soft_prompt_of_words_is_these_words_in_the_row(name: str, text: str, masked: bool) -> None:
    model, ids = made(name), torch.tensor([TEXTS[text]])
    row = torch.cat([WORDS[None], ids], 1)
    given, whole = ({"attention_mask": torch.ones_like(one)} if masked else {} for one in (ids, row))
    wanted = states(model, input_ids=row, **whole)[:, len(WORDS) :]
    with ts.attach(model, ts.Soft(length=len(WORDS))) as tuned:
        with torch.no_grad():
            tuned.parameters()[0].copy_(model.get_input_embeddings()(WORDS))
        found = states(model, input_ids=ids, **given)
    torch.testing.assert_close(found[:, -ids.shape[1] :], wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", MODELS)
def test_behind_a_prefix_a_text_has_the_positions_that_the_bare_model_gives_it(name: str, text: str) -> None:
    model, ids = made(name), torch.tensor([TEXTS[text]])
    mask, real = torch.ones_like(ids), (ids != PAD).long()
    own = real.cumsum(1) * real + PAD  # as modeling_roberta makes them
    bare = states(model, input_ids=ids, attention_mask=mask)
    assert torch.equal(bare, states(model, input_ids=ids, attention_mask=mask, position_ids=own))
    with ts.attach(model, ts.Prefix(length=3)):
        told = states(model, input_ids=ids, attention_mask=mask, position_ids=own)
        assert torch.equal(states(model, input_ids=ids, attention_mask=mask), told)
        torch.testing.assert_close(states(model, input_ids=ids), told, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_so_they_do_where_positions_are_given_and_in_a_bank(name: str) -> None:
    model, ids = made(name), torch.tensor([TEXTS["within"], TEXTS["at the end"], TEXTS["nowhere"]])
    mask = torch.ones_like(ids)
    real = (ids != PAD).long()
    own = real.cumsum(1) * real + PAD
    soft, lora = ts.Soft(length=2), ts.LoRA(rank=2)
    with ts.attach(model, soft) as tuned:
        artifacts = tuned.artifacts
        expected = states(model, input_ids=ids, attention_mask=mask)
        told = states(model, input_ids=ids, attention_mask=mask, position_ids=own)
        torch.testing.assert_close(told, expected, rtol=0, atol=1e-12)
    with ts.attach(model, ts.Bank({"s": artifacts, "l": lora})), torch.no_grad():
        rows = model(input_ids=ids, attention_mask=mask, rows=["s"] * 3).last_hidden_state
        torch.testing.assert_close(rows[:, -ids.shape[1] :], expected[:, -ids.shape[1] :], rtol=0, atol=1e-12)
        rows = model(input_ids=ids, attention_mask=mask, rows=["s", None, "l"]).last_hidden_state
        torch.testing.assert_close(rows[0, -ids.shape[1] :], expected[0, -ids.shape[1] :], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_of_embeddings_in_a_bank_does_not_hang_on_what_others_take(name: str) -> None:
    model = made(name)
    ids = torch.tensor([[PAD, PAD, 5, 6, 7], [8, 9, 10, 11, 12]])
    given = {"inputs_embeds": model.get_input_embeddings()(ids), "attention_mask": (ids != PAD).long()}
    bare = states(model, **given)
    with ts.attach(model, ts.Bank({"s": ts.Soft(length=2)})), torch.no_grad():
        found = model(**given, rows=[None, "s"]).last_hidden_state[0, -3:]
    torch.testing.assert_close(found, bare[0, -3:], rtol=0, atol=1e-12)


def test_a_probe_has_the_bare_text_where_it_stands_behind_the_context() -> None:
    from tunescope.models.anatomy import argument_names
    from tunescope.probes.see import _bare_inputs

    model, ids = made("roberta"), torch.tensor([TEXTS["within"], TEXTS["at the end"]])
    assert "position_ids" in argument_names(model)
    for mask in ({}, {"attention_mask": torch.ones_like(ids)}):
        found = _bare_inputs(model, 3, {"input_ids": ids, **mask})
        assert not isinstance(found, str)
        assert found["position_ids"].tolist() == [[5, 6, 1, 7, 8, 9], [5, 6, 7, 8, 1, 1]]
