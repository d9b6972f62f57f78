"""Nearest tokens by cosine."""

import pytest
import tiny
import torch

import tunescope as ts
from tunescope.looking.seeing import see
from tunescope.probes.neighbours import look, neighbours


def test_they_are_those_of_a_search_one_pair_at_a_time():
    g = torch.Generator().manual_seed(0)
    rows, table = torch.randn(3, 5, generator=g), torch.randn(11, 5, generator=g)
    got = neighbours(rows, table, 4)
    for row, ids, cosines in zip(rows, got.ids, got.cosine, strict=True):
        one = [float(row.double() @ other / row.double().norm() / other.norm()) for other in table.double()]
        order = sorted(range(11), key=lambda i: -one[i])[:4]
        assert ids.tolist() == order
        assert cosines.tolist() == pytest.approx([one[i] for i in order], abs=1e-12)
    assert torch.equal(neighbours(rows * 7, table / 3, 4).ids, got.ids)
    assert neighbours(rows, table, 99).ids.shape == (3, 11)


@pytest.mark.parametrize("family", ["llama", "gemma2", "bert", "t5"])
def test_a_hard_prompt_s_tokens_are_their_own_nearest_at_whatever_scale_the_model_embeds(family):
    model = tiny.make(family)
    seen = see(model, (ts.Text(text="w5 w60 w7"),), None, tiny.tokenizer())
    found = look(seen)
    assert [row[1] for row in found.rows] == ["w5", "w60", "w7"]
    assert [row[2] for row in found.rows] == pytest.approx([1, 1, 1])
    assert seen.along == {}
    assert 0 < found.numbers["nearest_to_chance"] < 1


def test_a_method_without_embeddings_is_told():
    model = tiny.make("gpt2")
    with pytest.raises(ts.UserError, match=r"prefix has no embeddings in the place of tokens; soft and text have"):
        look(see(model, (ts.Prefix(),), None))
