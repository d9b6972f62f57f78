"""The loss of a prompt, its gradient and the projection, against the same written out and against torch."""

import pytest
import tiny
import torch
from reference import searches as literal
from search_tools import WORDS, bench
from zoo import zoo

import tunescope as ts
from tunescope.methods.deltas.head import Head
from tunescope.search.methods._nearest import nearest
from tunescope.search.methods._swaps import shortlist
from tunescope.search.objective import GRADIENT, objective
from tunescope.search.vocabulary import vocabulary
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation

FAMILIES = ["gpt2", "llama", "mistral", "t5", "bart"]


@pytest.fixture(autouse=True)
def float64_throughout():
    with tiny.Float64():
        yield


def opened(given, length=3, fluency=0.0, ban=()):
    return objective(given, vocabulary(given.tokenizer, 96, ban), length, fluency)


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def prompts(goal, count=4):
    return torch.randint(len(goal.words.ids), (count, goal.length), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_and_its_gradient_are_those_of_the_whole_sequence(family, start):
    given = bench(family, start=start)
    with opened(given) as goal:
        assert goal.words.start == ((1,) if start else ())
        assert {row.lead for row in goal.rows} == {goal.words.start if given.kind == "encoder-decoder" else ()}
        some = prompts(goal)
        slopes = [goal.slope(prompt, goal.rows) for prompt in some]
        losses = goal.losses(some, goal.rows)
        assert goal.passes == (GRADIENT + 1) * 4 * 7
    for prompt, slope, loss in zip(some, slopes, losses, strict=True):
        expected, gradient = literal.gradient(given.model, goal.ids(prompt), goal.rows, goal.words.start)
        assert slope.loss == pytest.approx(expected, abs=1e-10)
        assert float(loss) == pytest.approx(expected, abs=1e-10)
        close(slope.gradient, gradient)


def test_many_prompts_in_several_passes_are_as_one(monkeypatch):
    given = bench()
    with opened(given) as goal:
        some = prompts(goal, 9)
        whole = goal.losses(some, goal.rows)
        monkeypatch.setattr("tunescope.search.objective.AT_ONCE", (10, 10))
        close(goal.losses(some, goal.rows), whole)


def test_of_a_generation_it_is_the_loss_of_the_targets():
    given = bench("llama", task=Generation(template="{input} w4"))
    with opened(given) as goal:
        (prompt,) = prompts(goal, 1)
        slope = goal.slope(prompt, goal.rows)
        loss = goal.losses(prompt[None], goal.rows)
    expected, gradient = literal.gradient(given.model, goal.ids(prompt), goal.rows, ())
    close(slope.gradient, gradient)
    close(loss, torch.tensor([expected], dtype=torch.float64))


@pytest.mark.parametrize("start", [False, True])
def test_fluency_is_the_prompt_s_own_cross_entropy_from_the_second_token_on(start):
    given = bench("gpt2", start=start)
    with opened(given, fluency=0.3) as goal:
        (prompt,) = prompts(goal, 1)
        slope = goal.slope(prompt, goal.rows)
        assert goal.passes == GRADIENT * 8
    expected, gradient = literal.gradient(given.model, goal.ids(prompt), goal.rows, goal.words.start, 0.3)
    assert slope.loss == pytest.approx(expected, abs=1e-10)
    close(slope.gradient, gradient)


def test_fluency_of_a_family_that_scales_its_inputs_in_place(monkeypatch):
    monkeypatch.setattr(tiny, "make", zoo)
    given = bench("ctrl", start=True)
    with opened(given, fluency=0.3) as goal:
        (prompt,) = prompts(goal, 1)
        slope = goal.slope(prompt, goal.rows)
    with opened(given) as goal, torch.no_grad():
        (plain,) = goal.losses(prompt[None], goal.rows)
        front = torch.tensor([goal.front(prompt)])
    own = torch.nn.functional.cross_entropy(given.model(input_ids=front).logits[0, 1:-1], front[0, 2:])
    assert slope.loss == pytest.approx(float(0.7 * plain + 0.3 * own.detach()), abs=1e-10)


def test_in_half_precision_fluency_is_the_cross_entropy_of_its_logits_in_float32():
    given = bench("gpt2")
    given.model.bfloat16()
    with opened(given, fluency=0.3) as goal, torch.no_grad():
        (prompt,) = prompts(goal, 1)
        found = goal._told_by_itself(goal.table[prompt], prompt)
        ids = torch.tensor(goal.ids(prompt))
        with goal.tuned.paused():
            logits = given.model(input_ids=ids[None, :-1], use_cache=False).logits[0].float()
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.nn.functional.cross_entropy(logits, ids[1:]))


def test_the_shortlist_is_the_order_of_the_gradient_at_the_one_hot_choice():
    given = bench()
    with opened(given) as goal:
        (prompt,) = prompts(goal, 1)
        slope = goal.slope(prompt, goal.rows)
        got = shortlist(slope.gradient, goal.table, 7)
    one_hot = torch.nn.functional.one_hot(prompt, len(goal.table)).double().requires_grad_()
    literal.loss(given.model, one_hot @ goal.table, goal.rows, []).backward()
    assert torch.equal(got, one_hot.grad.sort(dim=-1).indices[:, :7])
    assert shortlist(slope.gradient, goal.table, 10**6).shape == (3, len(goal.table))


@pytest.mark.parametrize("by", ["cosine", "euclidean"])
def test_the_nearest_is_that_of_a_loop_whatever_the_scale(by):
    draw = torch.Generator().manual_seed(0)
    table = torch.randn(23, 5, generator=draw, dtype=torch.float64) * torch.rand(23, 1, generator=draw).double()
    rows = torch.randn(11, 5, generator=draw, dtype=torch.float64)
    distance = torch.cdist(rows, table)
    cosine = torch.nn.functional.cosine_similarity(rows[:, None], table[None], dim=-1)
    expected = cosine.argmax(-1) if by == "cosine" else distance.argmin(-1)
    assert torch.equal(nearest(table, by)(rows), expected)
    assert torch.equal(nearest(table, by)(table), torch.arange(23))
    assert not torch.equal(cosine.argmax(-1), distance.argmin(-1))


def test_a_batch_is_different_rows_that_the_generator_draws():
    with opened(bench()) as goal:
        one = goal.batch(3, torch.Generator().manual_seed(1))
        assert goal.batch(3, torch.Generator().manual_seed(1)) == one
        assert len({row.row for row in one}) == 3
        assert len(goal.batch(99, torch.Generator())) == 7


def test_the_model_is_left_as_it_was_and_takes_no_gradient():
    given = bench()
    before = {name: value.clone() for name, value in given.model.named_parameters()}
    with opened(given, fluency=0.5) as goal:
        goal.slope(prompts(goal, 1)[0], goal.rows)
    for name, value in given.model.named_parameters():
        assert torch.equal(value, before[name]) and value.grad is None and value.requires_grad
    assert "_tunescope_attached" not in given.model.__dict__


@pytest.mark.parametrize(
    ("family", "length", "fluency", "message"),
    [
        ("gpt2", 0, 0.0, "length=0: a prompt has at least one token"),
        ("gpt2", 3, 1.0, "fluency=1 is a share of the loss; give 0 or more and less than 1"),
        ("gpt2", 1, 0.5, "fluency is of each token given those before it; give length=2 or more"),
        ("t5", 3, 0.5, "fluency=0.5 asks how likely the prompt is as text, and an encoder-decoder does not say"),
        ("gpt2", 64, 0.0, "the context takes 64 positions and the model has 64; make it shorter"),
    ],
)
def test_what_cannot_be_searched_is_one_clear_line(family, length, fluency, message):
    with pytest.raises(ts.UserError, match=message), opened(bench(family), length, fluency):
        pass


@pytest.mark.parametrize("family", ["gpt2", "t5", "bert"])
def test_the_losses_of_rows_are_the_loss_of_each_alone(family):
    head = {"template": "{text}", "by": "head", "words": {"a": "a", "b": "b", "c": "c"}}
    task = Classification(**(head if family == "bert" else {"template": "{text} w4", "words": WORDS}))
    given = bench(family, task=task)
    rows = given.encoded("train", room=None)
    specs = [Head(n_labels=3)] if family == "bert" else [ts.Soft(length=2)]
    with ts.attach(given.model, *specs) as tuned, torch.no_grad():
        for leaf in tuned.parameters():
            leaf.add_(torch.randn(leaf.shape, generator=torch.Generator().manual_seed(0), dtype=leaf.dtype))
        got = task.row_losses(given.model, rows, given.tokenizer)
        alone = [given.task.loss(given.model, [row], given.tokenizer) * max(1, len(row.target_ids)) for row in rows]
    close(got, torch.stack(alone))
