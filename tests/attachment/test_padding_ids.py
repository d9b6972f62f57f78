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
