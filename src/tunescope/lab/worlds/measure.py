"""What a model of the digit world can do without any adaptation, skill by skill."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import LlamaForCausalLM

from tunescope.lab.worlds.documents import document
from tunescope.lab.worlds.skills import find
from tunescope.lab.worlds.world import World

GIVEN = 3  # output tokens after which the wanted skill is clear in nearly every row
SHOWN = 3  # solved examples put in front of the input


@torch.no_grad()
def measure(model: LlamaForCausalLM, world: World, skill: str, rows: int) -> dict[str, float]:
    """Shares of ``rows`` test rows, always the same ones.

    ``exact_match``: whole outputs, greedy, with nothing that says which skill is wanted.
    ``token_accuracy_given_3``, ``exact_match_given_3``: tokens, and whole remainders, that are right once the
    first three output tokens are given. ``exact_match_shown_3``: whole outputs after three solved examples.
    """
    sequences = world.sequences("test", (SHOWN + 1) * rows, seed=0)
    alone, shown = sequences[:rows, None], sequences[rows:].reshape(rows, SHOWN, world.length)
    after = np.concatenate([shown, alone], axis=1)
    ids, labels = document(alone, find(skill)(alone), world)
    right = (model(ids, use_cache=False).logits[:, :-1].argmax(-1) == labels[:, 1:])[:, -world.length - 1 :]
    return {
        "exact_match": greedy_match(model, ids, world),
        "token_accuracy_given_3": right[:, GIVEN:].double().mean().item(),
        "exact_match_given_3": right[:, GIVEN:].all(1).double().mean().item(),
        "exact_match_shown_3": greedy_match(model, document(after, find(skill)(after), world)[0], world),
    }


@torch.no_grad()
def greedy_match(model: LlamaForCausalLM, ids: Tensor, world: World) -> float:
    """The share of documents whose last output, its end included, the model writes by itself."""
    asked = ids[:, : -world.length - 1]
    written = model.generate(
        asked, attention_mask=torch.ones_like(asked), max_new_tokens=world.length + 1, do_sample=False
    )
    written = pad(written, (0, ids.shape[1] - written.shape[1]), value=-1)
    return (written == ids).all(1).double().mean().item()
