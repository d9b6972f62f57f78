"""Nearest tokens by cosine."""

import pytest
import tiny
import torch

import tunescope as ts
from tunescope.attachment.context_keys import embedder
from tunescope.probes.looks.neighbours import look, neighbours, off, spacing
from tunescope.probes.see import see


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
    assert [row[3] for row in found.rows] == ["w5", "w60", "w7"]
    assert [row[4] for row in found.rows] == pytest.approx([0, 0, 0], abs=1e-6)
    assert seen.along == {}
    assert 0 < found.numbers["nearest_to_chance"] < 1


def test_two_prompts_of_one_name_have_each_their_rows():
    seen = see(
        tiny.make("llama"), (ts.Text(text="w5 w60"), ts.Text(text="w5 w60"), ts.Text(text="w7")), None, tiny.tokenizer()
    )
    found = look(seen)
    assert [row[1] for row in found.rows] == ["w5", "w60", "w5", "w60", "w7"]
    assert [row[0] for row in found.rows] == ["1. text 0", "1. text 1", "2. text 0", "2. text 1", "3. text 0"]


def test_a_method_without_embeddings_is_told():
    model = tiny.make("gpt2")
    with pytest.raises(ts.UserError, match=r"prefix has no embeddings in the place of tokens; soft and text have"):
        look(see(model, (ts.Prefix(),), None))


@pytest.mark.parametrize("family", ["llama", "gemma2", "bart", "t5"])
def test_distances_are_those_of_a_loop_at_the_scale_of_the_model_s_first_layer(family):
    model = tiny.make(family)
    seen = see(model, (ts.Soft(length=3, init_from="normal"),), None, tiny.tokenizer())
    (rows,) = seen.virtual.values()
    table = embedder(model)(torch.arange(tiny.VOCAB))
    far = [[float((row - other).norm()) for other in table] for row in rows]
    got = off(rows, seen.table)
    assert got.ids.tolist() == [one.index(min(one)) for one in far]
    assert got.distance.tolist() == pytest.approx([min(one) for one in far], abs=1e-9)
    assert [row[4] for row in look(seen).rows] == got.distance.tolist()


def test_the_spacing_of_tokens_is_the_median_distance_to_the_nearest_other():
    table = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nearest = [min(float((a - b).norm()) for j, b in enumerate(table) if j != i) for i, a in enumerate(table)]
    assert spacing(table) == pytest.approx(sorted(nearest)[4], abs=1e-9)
