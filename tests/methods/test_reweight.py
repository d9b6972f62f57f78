"""Anchor re-weighting: the paper's formula, where it acts, when it rests, and what it refuses."""

import json
from typing import Any

import pytest
import tiny
import tinyrun
import torch
from reference.reweight import reweighted
from torch import Tensor

import tunescope as ts
from tunescope.attachment import contexts
from tunescope.attachment.attention.edit import editing
from tunescope.attachment.attention.function import Edit
from tunescope.attachment.attention.record import record
from tunescope.methods.artifact import Artifact
from tunescope.methods.deltas.reweight import Reweight
from tunescope.methods.text_form import parse, show
from tunescope.models.family import family_names, find_family
from tunescope.probes.see import see
from tunescope.tasks.kinds.generation import Generation
from tunescope.trial.budget import count

DEMOS = torch.tensor([5, 9, 12, 7, 30, 6, 11])
ANCHORS = ("1", "4/5")  # the second label word has two tokens
WORDS = ((1,), (4, 5))
LENGTHS = (7, 4)
FORMS = ("scaled", "bias")
DECODERS = [name for name in family_names() if find_family(name).kind == "decoder"]
PAIRS = [name for name in family_names() if find_family(name).kind == "encoder-decoder"]


def text(ids: Tensor = DEMOS) -> Artifact:
    return Artifact(ts.Text(text="demonstrations"), {"ids": ids})


def behind(model: Any, form: str = "scaled", *, fresh: bool = False) -> Artifact:
    """A Reweight away from zero, so that every beta is different."""
    spec = Reweight(anchors=ANCHORS, form=form)
    with ts.attach(model, text(), spec) as tuned:
        made = tuned.artifacts[1]
    generator = torch.Generator().manual_seed(2)
    if not fresh:
        made.tensors = {
            name: torch.randn(value.shape, generator=generator, dtype=value.dtype)
            for name, value in made.tensors.items()
        }
    return made


def betas(made: Artifact) -> dict[str, Tensor]:
    return {name.removesuffix(".beta"): value for name, value in made.tensors.items()}


def queries(lengths: tuple[int, ...] = LENGTHS) -> list[Tensor]:
    return [row[:length] for row, length in zip(tiny.ids(len(lengths)), lengths, strict=True)]


def padded(rows: list[Tensor], padding: str) -> tuple[dict[str, Tensor], list[int]]:
    """A decoder's inputs, and the column in which each row begins."""
    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask, begins = torch.zeros_like(ids), []
    for index, row in enumerate(rows):
        begins.append(longest - len(row) if padding == "left" else 0)
        where = slice(begins[-1], begins[-1] + len(row))
        ids[index, where], mask[index, where] = row, 1
    return {"input_ids": ids, "attention_mask": mask}, begins


def decoder_case(model: Any, padding: str, before: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Our inputs, the inputs as plain tokens, and what the literal version is told.

    before: how many tokens before the last of each row the output starts.
    """
    ours, begins = padded(queries(), padding)
    ours["output_start"] = torch.tensor([at + n - 1 - before for at, n in zip(begins, LENGTHS, strict=True)])
    plain, begins = padded([torch.cat([DEMOS, row]) for row in queries()], padding)
    if padding != "none":
        ours["position_ids"] = (ours["attention_mask"].cumsum(1) - 1).clamp(min=0)
        plain["position_ids"] = (plain["attention_mask"].cumsum(1) - 1).clamp(min=0)
    told = {
        "words": [[[at + column for column in columns] for columns in WORDS] for at in begins],
        "start": [at + len(DEMOS) + n - 1 - before for at, n in zip(begins, LENGTHS, strict=True)],
    }
    return ours, plain, told


def at_queries(logits: Tensor, given: dict[str, Tensor]) -> Tensor:
    """(tokens, vocabulary) at the real tokens of the queries, each row's last ones."""
    rows = [row[mask.bool()] for row, mask in zip(logits, given["attention_mask"], strict=True)]
    return torch.cat([row[-n:] for row, n in zip(rows, LENGTHS, strict=True)])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("family", DECODERS)
def test_in_a_decoder_it_is_the_formula_on_plain_tokens_and_so_are_its_gradients(
    family: str, padding: str, form: str
) -> None:
    model = tiny.make(family).requires_grad_(False)
    made = behind(model, form)
    ours, plain, told = decoder_case(model, padding, before=2)
    weights = torch.randn(sum(LENGTHS), tiny.VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    literal_betas = {name: beta.clone().requires_grad_() for name, beta in betas(made).items()}
    with tiny.Float64(), reweighted(model, literal_betas, form=form, **told):
        expected = at_queries(model(**plain).logits, plain)
    slopes = torch.autograd.grad((expected * weights).sum(), list(literal_betas.values()))
    with tiny.Float64(), ts.attach(model, text(), made) as tuned:
        got = at_queries(model(**ours).logits, ours)
        (at_queries(tuned.train().model(**ours).logits, ours) * weights).sum().backward()
    torch.testing.assert_close(got, expected.detach(), rtol=0, atol=1e-12)
    assert len(slopes) == len(tuned.parameters()) == 2
    for slope, leaf in zip(slopes, tuned.parameters(), strict=True):
        torch.testing.assert_close(leaf.grad, slope, rtol=0, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", PAIRS)
def test_in_an_encoder_decoder_it_is_the_formula_on_cross_attention(family: str, form: str) -> None:
    model = tiny.make(family)
    made, first = behind(model, form), torch.tensor([8, 14, 3])
    assert all(".cross" in name for name in made.tensors)
    ours, _ = padded(queries(), "right")
    plain, _ = padded([torch.cat([first, DEMOS, row]) for row in queries()], "right")
    outputs = {"decoder_input_ids": tiny.ids(2, 5, seed=2)}
    words = [[[len(first) + column for column in columns] for columns in WORDS]] * 2
    with torch.no_grad(), tiny.Float64():
        with reweighted(model, betas(made), words, [0, 0], form):
            expected = model(**plain, **outputs).logits
        with ts.attach(model, text(first), text(), made):
            got = model(**ours, **outputs).logits
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_as_a_bias_it_is_a_mask_that_transformers_adds(family: str) -> None:
    model = tiny.make(family, attention="eager")
    made, query = behind(model, "bias"), queries()[0]
    same = next(iter(betas(made).values()))  # a mask is the same for all layers
    made.tensors = {name: same.clone() for name in made.tensors}
    plain = torch.cat([DEMOS, query])[None]
    length = plain.shape[1]
    mask = torch.full((length, length), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)
    mask = mask.expand(1, len(same), length, length).clone()
    for k, columns in enumerate(WORDS):
        for column in columns:
            mask[0, :, -1, column] += same[:, k]
    with torch.no_grad(), tiny.Float64():
        expected = model(input_ids=plain, attention_mask=mask).logits[0, -1]
        with ts.attach(model, text(), made):
            got = model(input_ids=query[None]).logits[0, -1]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("before", [(), (ts.Prefix(length=3),)])
def test_scaled_is_to_multiply_the_label_word_s_values(before: tuple[Any, ...]) -> None:
    model = tiny.make("gpt2")
    made = behind(model)
    *front, low = ts.lower(model, *before, text())
    scaled = Artifact(low.spec, dict(low.tensors))
    for name, beta in betas(made).items():
        value = low.tensors[f"{name}.value"].clone()  # (heads, columns, d)
        for k, columns in enumerate(WORDS):
            for column in columns:
                value[:, column] *= beta[:, k, None].exp()
        scaled.tensors[f"{name}.value"] = value
    given = {"input_ids": queries()[0][None], "output_start": torch.tensor([0])}
    with torch.no_grad():
        with ts.attach(model, *front, scaled):
            expected = model(**given).logits
        for demonstrations in (text(), low):
            with ts.attach(model, *front, demonstrations, made):
                torch.testing.assert_close(model(**given).logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", [*DECODERS, *PAIRS])
@pytest.mark.parametrize("form", FORMS)
def test_at_zero_and_not_training_it_is_the_identity_to_the_bit(family: str, form: str) -> None:
    model = tiny.make(family, dtype=torch.float32)
    given = tiny.batch(model)
    with torch.no_grad():
        with ts.attach(model, text()):
            plain = tiny.output(model, given)
        with ts.attach(model, text(), behind(model, form, fresh=True)) as tuned:
            assert torch.equal(tiny.output(model, given), plain)
            for leaf in tuned.parameters():
                leaf.add_(1.0)
            assert not torch.equal(tiny.output(model, given), plain)
            for leaf in tuned.parameters():
                leaf.zero_()
            assert torch.equal(tiny.output(model, given), plain)
            tuned.train()
            assert torch.equal(tiny.output(model, given), plain)  # without gradients nothing trains
    assert tuned.artifacts[1].spec.fresh_is_identity


def test_whether_it_rests_is_asked_once_for_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked, rests = tiny.make("gpt2"), [], Reweight.rests
    monkeypatch.setattr(Reweight, "rests", lambda self, p: asked.append(1) or rests(self, p))
    with torch.no_grad(), ts.attach(model, text(), behind(model, fresh=True)) as tuned:
        for _ in range(3):
            tiny.output(model, tiny.batch(model))
        assert len(asked) == len(tuned.parameters()) == 2
        tuned.parameters()[0].add_(1.0)
        tiny.output(model, tiny.batch(model))
        assert len(asked) == 3


def test_the_demonstrations_are_run_once_while_only_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    model, runs, run = tiny.make("llama"), [], contexts.extras_of
    monkeypatch.setattr(contexts, "extras_of", lambda *args: runs.append(1) or run(*args))
    given = tiny.batch(model) | {"output_start": torch.tensor([2, 2])}
    with ts.attach(model, text(), behind(model)) as tuned:
        with torch.inference_mode():
            tiny.output(model, given)
        optimizer = torch.optim.Adam(tuned.train().parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            tiny.output(model, given).square().mean().backward()
            optimizer.step()
        assert len(runs) == 2  # in inference mode, and for the first step
        model.train()  # dropout, if there were any, would draw anew
        tiny.output(model, given)
        tiny.output(model, given)
        assert len(runs) == 4
    with ts.attach(model, text(), behind(model), ts.LoRA(rank=2)) as tuned:
        del runs[:]
        for _ in range(2):
            tiny.output(tuned.train().model, given)
        assert len(runs) == 2  # under a delta that trains, the demonstrations' keys change


@pytest.mark.parametrize("form", FORMS)
def test_decoding_step_by_step_with_a_cache_is_decoding_the_whole_text(form: str) -> None:
    model, query = tiny.make("llama"), queries()[0][None]
    with torch.no_grad(), ts.attach(model, text(), behind(model, form)):
        greedy = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
        out = model.generate(input_ids=query, **greedy)
        ways = ({"use_cache": False}, {"cache_implementation": "static"}, {"prefill_chunk_size": 2})
        for how in (*ways, {"prompt_lookup_num_tokens": 2}):
            assert torch.equal(model.generate(input_ids=query, **greedy, **how), out), how
        whole, start = query, torch.tensor([query.shape[1] - 1])
        for _ in range(5):
            logits = model(input_ids=whole, output_start=start, use_cache=False).logits
            whole = torch.cat([whole, logits[:, -1:].argmax(-1)], 1)
        with pytest.raises(ts.UserError, match=r"without a cache needs output_start.* and so does a reweight"):
            model(input_ids=query, use_cache=False)
    assert torch.equal(out, whole)


def test_free_keys_in_front_move_the_columns() -> None:
    """Those stand before all tokens of an encoder, and in a decoder where they are listed."""
    prefix, other, soft = ts.Prefix(length=4), text(DEMOS[:2]), ts.Soft(length=2)
    for family, name, listed_behind in (("t5", "decoder.1.cross", 6), ("gpt2", "decoder.1.self", 2)):
        model = tiny.make(family)
        made = behind(model)
        for value in made.tensors.values():
            value.fill_(-torch.inf)
        for front, back, n in (([prefix, other], [soft], 6), ([other], [soft, prefix], listed_behind)):
            with ts.attach(model, *front, text(), made, *back):
                weights = record(model, tiny.batch(model, "none"), "weights")[f"{name}.weights"]
            gone = (weights[:, :, -1] == 0).all(0).all(0).nonzero()[:, 0].tolist()
            assert gone == [n + column for columns in WORDS for column in columns]


def test_an_edit_on_top_leaves_it_as_it_was() -> None:
    model = tiny.make("gpt2")
    given = tiny.batch(model)
    seen: list[Tensor] = []

    def look(weights: Tensor, _: dict[str, Any]) -> Tensor:
        seen.append(weights)
        return weights

    with torch.no_grad(), ts.attach(model, text(), behind(model)):
        expected = tiny.output(model, given)
        with editing(model, {"decoder.0.self": Edit(weights=look)}):
            assert torch.equal(tiny.output(model, given), expected)
        assert torch.equal(tiny.output(model, given), expected)
    assert len(seen) == 1
    assert float((seen[0].sum(-1) - 1).abs().max()) > 1e-3  # it sees what the delta made, which is not renormalised


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_what_probes_see_adds_up_to_the_layer_s_output(family: str, form: str) -> None:
    model = tiny.make(family)
    seen = see(model, [text(), behind(model, form)], tiny.batch(model, "none"))
    for layer in seen.along.values():
        torch.testing.assert_close(layer.bias + layer.content, layer.output, rtol=0, atol=1e-12)


def test_lowered_demonstrations_take_another_reweight() -> None:
    model = tiny.make("gpt2")
    one, other = behind(model, "scaled"), behind(model, "bias")
    given = tiny.batch(model)
    low, *_ = ts.lower(model, text(), one)
    with torch.no_grad():
        with ts.attach(model, text(), other):
            expected = tiny.output(model, given)
        with ts.attach(model, low, other) as tuned:
            torch.testing.assert_close(tiny.output(model, given), expected, rtol=0, atol=1e-12)
            with pytest.raises(ts.UserError, match="Lowered keys and values go stale"):
                tuned.train()


def test_it_counts_a_beta_for_every_query_head_module_and_label_word() -> None:
    for family, n_heads in (("gpt2", 3), ("llama", 4), ("t5", 3)):
        model = tiny.make(family)
        assert count(model, parse("reweight:anchors=1,4/5")) == (2 * n_heads * 2,) * 3


@pytest.mark.parametrize("spec", [Reweight(), Reweight(anchors=ANCHORS), Reweight(anchors=("3",), form="bias")])
def test_its_arm_string_and_its_json_give_it_back(spec: Reweight) -> None:
    assert parse(show([spec])) == (spec,)
    assert parse("text:text=a b+" + show([spec]))[1] == spec
    assert tuple(json.loads(json.dumps(spec.anchors))) == spec.anchors


@pytest.mark.parametrize(
    ("family", "arm", "message"),
    [
        (
            "gpt2",
            "text:text=w5 w6+reweight",
            "no demonstrations to act on: --arms demos:k=1.reweight puts some in front",
        ),
        ("gpt2", "text:text=w5 w6+reweight:anchors=one", "positions of tokens, each once, counted from 0"),
        ("gpt2", "text:text=w5 w6+reweight:anchors=1,0/1", "positions of tokens, each once, counted from 0"),
        ("gpt2", "text:text=w5 w6+reweight:anchors=-1", "positions of tokens, each once, counted from 0"),
        ("gpt2", "text:text=w5 w6+reweight:anchors=1,2", r"position 2 \(from 0\), and the text .* has 2 tokens"),
        ("t5", "text:text=w5 w6+reweight:anchors=1,2", r"position 2 \(from 0\), and the text .* has 2 tokens"),
        ("gpt2", "reweight:anchors=1", "text right before it, and the context there is: none. Put demonstrations"),
        ("gpt2", "reweight:anchors=1+text:text=w5 w6", "the context there is: none"),
        ("gpt2", "text:text=w5 w6+soft:length=2+reweight:anchors=1", "the context there is: Soft"),
        ("gpt2", "text:text=w5 w6+prefix:length=2+reweight:anchors=1", "the context there is: Prefix"),
        ("bert", "text:text=w5 w6+reweight:anchors=1", "an encoder makes none: take a decoder"),
    ],
)
def test_what_it_cannot_act_on_is_refused(family: str, arm: str, message: str) -> None:
    with pytest.raises(ts.UserError, match=message):
        ts.attach(tiny.make(family), *parse(arm), tokenizer=tiny.tokenizer())


def test_the_published_table_is_one_command(tmp_path: Any) -> None:
    model, data = tinyrun.write(tmp_path)
    arms = ["demos:k=1", "demos:k=2", "demos:k=1+reweight", "demos:k=2+reweight:form=bias", "prefix:length=1", "lora"]
    options = {"budget": 200, "seeds": 2, "trials": 2, "beyond": 0, "steps": 12, "quiet": True}
    run = ts.compare(model, data, arms=[*arms, "reweight"], out=tmp_path / "run", **options)
    found = {arm["name"]: arm for arm in run.results["arms"]}
    one, two = found["demos:k=1+reweight"], found["demos:k=2+reweight:form=bias"]
    assert one["status"] == two["status"] == "done"
    assert one["parameters"]["trained"] == 2 * 2 * 2  # modules, heads, demonstrations
    assert two["parameters"]["trained"] == 2 * 2 * 4
    assert sorted(trial["learning_rate"] for trial in one["trials"]) == [0.01, 0.1]
    assert "balanced_accuracy" in one["runs"][0]["test"]
    assert (found["reweight"]["status"], found["demos:k=1"]["group"]) == ("refused", "text")
    assert one["group"] == two["group"] == "both"  # a yardstick: neither the best context nor the best delta
    evidence = run.results["verdict"]["evidence"]
    assert (evidence["context"]["name"], evidence["delta"]["name"]) == ("prefix:length=1", "lora")
    words = tinyrun.tokenizer()
    drawn = set()
    for trained in two["runs"]:
        demonstrations, reweight = ts.load(tmp_path / "run" / "arms" / trained["id"] / "artifact")
        tokens = words.convert_ids_to_tokens(demonstrations.tensors["ids"])
        assert sorted(tokens[int(at)] for at in reweight.spec.anchors) == ["neg", "neg", "pos", "pos"]
        assert any(bool(value.any()) for value in reweight.tensors.values())
        drawn.add(reweight.spec.anchors)
    assert len(drawn) == 2  # each seed draws its own demonstrations


def test_a_task_without_label_words_refuses_it(tmp_path: Any) -> None:
    model, data = tinyrun.write(tmp_path)
    task = Generation(input="text", target="label", template="{text}\n", metric="exact_match")
    with pytest.raises(ts.UserError, match="label words of demonstrations, and only a classification has them"):
        ts.compare(model, data, arms=["demos:k=1+reweight"], task=task, out=tmp_path / "run", steps=2, quiet=True)
