"""Demonstrations of each query's own: which rows, averaged over sets, trained with, on every kind of model."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import masked
import pytest
import tinyrun
import torch
from reference import demonstrations as literal

import tunescope as ts
from tunescope.attachment.tuned import Bare
from tunescope.comparison import arms, estimate, job, score, workers
from tunescope.comparison.comparison import ask
from tunescope.comparison.problem import attached, problem_of, specs_of
from tunescope.data.row import Row
from tunescope.errors import Note
from tunescope.methods.contexts.anchors import Anchors
from tunescope.methods.contexts.text import Text
from tunescope.tasks.answers import ensemble, row_vectors
from tunescope.trial import bench as bench_module
from tunescope.trial import plan, plan_check, questions
from tunescope.trial.arm import Arm
from tunescope.trial.demos import draw
from tunescope.trial.demos import per_query as own_demos
from tunescope.trial.demos.draw import drawn
from tunescope.trial.demos.spec import Demos
from tunescope.trial.open import open_bench
from tunescope.trial.train import loop
from tunescope.trial.train.settings import Settings

WORDS = {"neg": "bad", "pos": "good"}
TEMPLATES = {"gpt2": "{text} was", "t5": "{text} it was {mask}.", "bert": "{text} it was {mask}."}
LONG = {"neg": "dull film", "pos": "good"}  # whole words, not first tokens, are scored where they can be


@pytest.fixture(scope="module", params=["gpt2", "t5", "bert"])
def material(request, tmp_path_factory):
    name, folder = request.param, tmp_path_factory.mktemp("own")
    model, tokenizer = (tinyrun.model(), tinyrun.tokenizer()) if name == "gpt2" else masked.make(name)
    model = model.double()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        for leaf in model.parameters():
            leaf.add_(0.1 * torch.randn_like(leaf))
    model.float().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    data = {}
    for seed, (part, count) in enumerate({"train": 12, "dev": 8, "test": 6}.items()):
        data[part] = str(folder / f"{part}.jsonl")
        made = [one | {"label": ["neg", "pos"][n % 2]} for n, one in enumerate(tinyrun.rows(count, seed))]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    return name, folder, data


def question(material, *texts, **changes):
    name, folder, data = material
    task = {"kind": "classification", "by": "words", "template": TEMPLATES[name]}
    task["words"] = WORDS if name == "bert" else LONG
    fields = {"model": str(folder / "model"), "data": data, "task": task, "arms": texts, "seeds": (0,), "trials": 1}
    fields["settings"] = Settings(steps=3, batch_size=4, eval_every=2, patience=3)
    return plan_check.check(plan.Plan(**({"beyond": 0} | fields | changes)))


@pytest.fixture(scope="module")
def bench(material):
    return open_bench(question(material))


def literal_states(bench, part):
    """Each row's mean of transformers' last states, its template filled by hand."""
    found = []
    for row in bench.splits.parts()[part]:
        ids = torch.tensor([query_ids(bench, row["text"], alone=True)])
        with torch.no_grad():
            if bench.kind == "encoder-decoder":
                states = bench.model.get_encoder()(input_ids=ids).last_hidden_state
            else:
                states = bench.model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
        found.append(states[0].mean(0))
    return torch.stack(found)


def query_ids(bench, text, *, alone):
    """The ids of a filled template; alone, or to stand behind demonstrations, which begin the sequence."""
    tokenizer, mark = bench.tokenizer, {"encoder": "[MASK]", "encoder-decoder": "<extra_id_0>"}.get(bench.kind)
    filled = bench.task.template.replace("{mask}", mark or "").replace("{text}", text)
    if alone:
        return tokenizer(filled)["input_ids"]
    line = tokenizer("\n", add_special_tokens=False)["input_ids"]
    return tokenizer("\n" + filled)["input_ids"][len(line) + (bench.kind == "encoder") :]


def front_ids(bench, shown):
    filled = []
    for index in shown:
        row = bench.splits.train[index]
        word, template = bench.task.words[row["label"]], bench.task.template
        template = template if "{mask}" in template else template + " {mask}"
        filled.append(template.replace("{mask}", word).replace("{text}", row["text"]) + "\n\n")
    ids = bench.tokenizer("".join(filled), add_special_tokens=False)["input_ids"]
    return [2, *ids] if bench.kind == "encoder" else ids  # BERT's [CLS]


def literal_scores(bench, shown, text):
    ids = front_ids(bench, shown) + query_ids(bench, text, alone=False)
    words = [list(word) for word in bench.task.word_ids(bench.tokenizer, bench.kind).values()]
    at, lead = None, []
    if bench.kind == "encoder":
        at = [place for place, token in enumerate(ids) if token == bench.tokenizer.mask_token_id][-1]
    if bench.kind == "encoder-decoder":
        lead = [bench.tokenizer.convert_tokens_to_ids("<extra_id_0>")]
    return literal.scores(bench.model, ids, words, at, lead)


def groups(bench):
    rows = bench.splits.train
    return [[index for index, row in enumerate(rows) if row["label"] == label] for label in ("neg", "pos")]


@pytest.mark.parametrize("part", ["train", "test"])
def test_similar_rows_are_drawn_from_the_half_of_each_label_most_like_the_query_and_never_itself(bench, part):
    demos, states = Demos(k=2, choose="similar", sets=30), literal_states(bench, "train")
    for index, query in enumerate(literal_states(bench, part)):
        random, seen = Random(index), set()
        for _ in range(30 if part == "train" else 1):
            for one in draw.sets_of(demos, bench, part, index, random):
                seen |= set(one)
                assert [sum(row in group for row in one) for group in groups(bench)] == [2, 2]
                assert len(set(one)) == 4
        others = [[row for row in group if part == "test" or row != index] for group in groups(bench)]
        expected = [
            literal.half(query, states, some, len(group) // 2)
            for some, group in zip(others, groups(bench), strict=True)
        ]
        assert seen == set.union(*expected)  # all of them come, and no other


def test_a_number_and_its_text_ask_the_same(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    asked = ((5, "neg"), ("5", "neg"), ("film", "pos"), ("plot", "pos"))
    rows = [{"text": text, "label": label} for text, label in asked]
    path = tmp_path / "numbers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = dict.fromkeys(plan.PARTS, str(path))
    found = draw.source(Demos(k=1, choose="random", sets=2), open_bench(plan.Plan(model=model, data=parts)))
    assert found.inputs[0] == found.inputs[1] and len(set(found.inputs)) == 3


@pytest.mark.parametrize("choose", ["similar", "balanced", "random"])
def test_each_training_row_is_shown_other_rows_at_every_access_and_never_itself(bench, choose):
    demos = Demos(k=1, choose=choose, sets=2)
    draw.source(demos, bench)
    chosen, tokens = list(range(12)), lambda rows: [row.input_ids for row in rows]
    asked = own_demos.QueryDemos(demos, bench, bench.task, 0, None)
    state = torch.get_rng_state()
    first, second = asked.drawn_now(chosen), asked.drawn_now(chosen)
    torch.set_rng_state(state)
    assert tokens(asked.drawn_now(chosen)) == tokens(first) != tokens(second)  # as a resumed run goes on
    for _ in range(20):
        for index in chosen:
            (one,) = draw.sets_of(demos, bench, "train", index, Random(int(torch.randint(2**62, ()))))
            assert index not in one and len(one) == 2
    for index, row in enumerate(first):
        text = bench.splits.train[index]["text"]
        tail = query_ids(bench, text, alone=False)
        assert list(row.input_ids[-len(tail) :]) == tail
        assert (row.slot is None) == (bench.kind != "encoder")
        if row.slot is not None:
            assert row.slot == len(row.input_ids) - len(tail) + tail.index(bench.tokenizer.mask_token_id)


def test_no_row_is_asked_to_fit_beside_another_rows_demonstrations(bench, monkeypatch):
    asked, rooms, whole = (
        own_demos.QueryDemos(Demos(k=1, sets=2), bench, bench.task, 0, None),
        set(),
        type(bench).encoded,
    )
    monkeypatch.setattr(
        type(bench), "encoded", lambda self, *part, **more: rooms.add(more["room"]) or whole(self, *part, **more)
    )
    monkeypatch.setattr("tunescope.trial.bench.room", lambda bench, taken: 10_000 - taken)
    asked.rows("test", 3)
    assert rooms == {None}


@pytest.mark.parametrize("part", ["test", "train"])
def test_a_row_is_cut_beside_its_own_demonstrations_and_not_beside_the_longest(bench, part, monkeypatch):
    asked = own_demos.QueryDemos(Demos(k=1, choose="balanced", sets=3), bench, bench.task, 0, None)
    fronts, whole = asked.fronts(part, 7), asked.rows(part, 7)
    words = bench.task.word_ids(bench.tokenizer, bench.kind).values() if bench.kind == "decoder" else [()]
    answer = max(0, max(map(len, words)) - 1)  # its last token is read by nobody
    needed = sorted(len(row.input_ids) + answer for one in whole for row in one)
    limit = needed[len(needed) // 2]
    monkeypatch.setattr("tunescope.trial.bench.room", lambda bench, taken: limit - taken)
    again = own_demos.QueryDemos(asked.demos, bench, bench.task, 0, None)
    found = [again.rows(part, 7)]
    if part == "train":
        state = torch.get_rng_state()
        drawn = again.drawn_now(list(range(12)))
        monkeypatch.undo()
        torch.set_rng_state(state)
        free = again.drawn_now(list(range(12)))
        found, whole, fronts = [*found, [drawn]], [*whole, free], [*fronts, [()] * 12]
    cut = 0
    for one, full, front in zip([row for some in found for row in some], whole, fronts, strict=True):
        for row, uncut, shown in zip(one, full, front, strict=True):
            fits = len(uncut.input_ids) + answer <= limit
            assert (row.cut == 0) == fits and (row.input_ids == uncut.input_ids) == fits
            assert row.input_ids[: len(shown)] == tuple(shown) and len(row.input_ids) <= limit
            assert row.slot is None or row.input_ids[row.slot] == bench.tokenizer.mask_token_id
            cut += not fits
    assert 0 < cut < sum(map(len, whole))


def test_rows_of_one_line_are_cut_each_from_its_own_words_and_counted_behind_any_set(bench, monkeypatch):
    """Many rows of a corpus come from one line of its file, or from the same line of several."""
    demos = Demos(k=1, choose="balanced", sets=3)
    same = [Row(dict(row), "test.jsonl", 1) for row in bench.splits.test]
    own = replace(bench, rows={}, demos=type(bench.demos)(), splits=replace(bench.splits, test=same))
    apart, asked = (own_demos.QueryDemos(demos, one, one.task, 0, None) for one in (bench, own))
    lengths = sorted(len(row.input_ids) for one in apart.rows("test", 7) for row in one)
    limit = lengths[len(lengths) // 3]
    monkeypatch.setattr("tunescope.trial.bench.room", lambda bench, taken: limit - taken)
    cut = asked.rows("test", 7)
    assert [[row.input_ids for row in one] for one in cut] == [
        [row.input_ids for row in one] for one in apart.rows("test", 7)
    ]

    todo = job.job(own, arms.ready(Arm("own", str(demos)), own), (), 7)
    behind_any = sum(any(row.cut for row in sets) for sets in zip(*cut, strict=True))
    assert sum(row.cut > 0 for row in cut[0]) < behind_any
    assert score.cut(own, todo, Bare(), "test") == {"test": behind_any}


def test_the_loss_in_training_is_that_of_the_rows_behind_what_was_drawn(bench):
    arm = arms.ready(Arm("one", "demos:k=1,choose=similar+lora:rank=2"), bench)
    todo = job.job(bench, arm, (1e-3,), 0)
    with attached(bench, todo, specs_of(bench, todo)) as tuned:
        problem = problem_of(bench, todo, tuned)
        torch.manual_seed(4)
        loss = problem.loss([3, 0])
        torch.manual_seed(4)
        random = Random(int(torch.randint(2**62, ())))
        shown = [draw.sets_of(arm.demos, bench, "train", index, random)[0] for index in (3, 0)]
    rows = [bench.splits.train[index] for index in (3, 0)]
    found = [literal_scores(bench, one, row["text"]) for one, row in zip(shown, rows, strict=True)]
    targets = [["neg", "pos"].index(row["label"]) for row in rows]
    if bench.kind == "encoder":  # over the label words alone, equation 1
        expected = -sum(one.log_softmax(-1)[target] for one, target in zip(found, targets, strict=True)) / 2
    else:  # a token's mean
        words = list(bench.task.word_ids(bench.tokenizer, bench.kind).values())
        count = sum(len(words[target]) for target in targets)
        expected = -sum(one[target] for one, target in zip(found, targets, strict=True)) / count
    torch.testing.assert_close(loss.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "text", ["choose=similar,sets=5", "sets=3", "choose=similar,sets=4,calibrate=true", "choose=nearest,calibrate=true"]
)
def test_the_answer_is_the_mean_of_the_scores_behind_each_set_as_written_out(bench, text):
    arm = arms.ready(Arm("one", f"demos:k=1,{text}"), bench)
    found = questions.predictions(arm, bench, Bare(), "test", 7)
    own, random, free, expected = (
        own_demos.QueryDemos(arm.demos, bench, bench.task, 0, None),
        Random("7 test"),
        None,
        [],
    )
    for row in bench.splits.test:
        shown = draw.sets_of(arm.demos, bench, "test", len(expected), random)
        assert len(shown) == arm.demos.sets
        if arm.demos.calibrate:
            free = [[literal_scores(bench, one, words) for words in literal.CONTENT_FREE] for one in shown]
        expected.append(literal.answer([literal_scores(bench, one, row["text"]) for one in shown], free))
    prior = own.priors("test", 7) if arm.demos.calibrate else None
    got = ensemble.averaged(bench.task, bench.model, own.rows("test", 7), bench.tokenizer, prior)
    shares = torch.stack(expected).log_softmax(-1)
    torch.testing.assert_close(got.double().log_softmax(-1), shares, rtol=0, atol=2e-5)
    assert [one.text for one in found] == [["neg", "pos"][label] for label in shares.argmax(-1).tolist()]
    assert [one.stats[0] for one in found] == [
        float(f.text == r["label"]) for f, r in zip(found, bench.splits.test, strict=True)
    ]


def test_rows_are_compared_by_the_model_as_it_is_before_anything_is_attached(material, bench):
    fresh = open_bench(question(material))
    arm = arms.ready(Arm("one", "demos:k=1,choose=similar+text:text=a film was+prefix:length=2"), bench)
    todo = job.job(fresh, arm, (1e-3,) * 2, 0)
    with attached(fresh, todo, specs_of(fresh, todo)) as tuned:
        problem = problem_of(fresh, todo, tuned)
        assert problem.loss([0, 1]) > 0
        rows = questions.rows_of(arm, fresh, tuned, "dev", 0)
        if bench.kind == "encoder":  # the text in front has begun the sequence
            assert all(row.input_ids[0] != bench.tokenizer.cls_token_id for row in rows)
    for part in ("train", "dev", "test"):
        torch.testing.assert_close(fresh.states(part), literal_states(bench, part), rtol=0, atol=1e-5)


def test_logits_and_log_probabilities_of_one_token_words_come_to_the_same_shares():
    logits = torch.randn(5, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))  # (sets, vocabulary)
    words = [3, 17, 8]
    ways = [logits[:, words], logits.log_softmax(-1)[:, words], logits[:, words].log_softmax(-1)]
    one, two, three = (way.mean(0).softmax(-1) for way in ways)
    torch.testing.assert_close(one, two, rtol=0, atol=1e-14)
    torch.testing.assert_close(one, three, rtol=0, atol=1e-14)


ARMS = ("demos:k=1,choose=similar", "demos:k=2,choose=similar,sets=3", "demos:k=1,choose=similar,sets=2+full")
ARMS += ("demos:k=1,choose=nearest+lora:rank=2", "demos:k=1,sets=2,calibrate=true+soft:length=2")


def test_every_way_is_an_arm_that_finishes_and_its_cost_is_told(material, tmp_path):
    found = ask(question(material, *ARMS, seeds=(0, 1)), tmp_path / "run", quiet=True)
    by_name = {arm["name"]: arm for arm in found.results["arms"]}
    assert {name: arm["status"] for name, arm in by_name.items()} == dict.fromkeys(ARMS, "done")
    plain, several, tuned, nearest, soft = (by_name[name] for name in ARMS)
    assert len(plain["runs"]) == len(several["runs"]) == 2  # other seeds draw other rows
    assert (
        "no artifact" in plain["remarks"][0]
        and "drawn from the half of each label's rows that is most like it" in plain["remarks"][0]
    )
    assert several["remarks"][1].endswith("behind 3 draws of demonstrations, which takes 3 passes a query.")
    assert soft["remarks"][1].endswith("behind 2 draws of demonstrations, which takes 8 passes a query.")
    assert "saved without them; in training a row is never among its own, and they are drawn" in tuned["remarks"][0]
    assert nearest["remarks"][0].endswith("in training a row is never among its own.")
    assert "read 3 times a query" in several["budget_note"]
    assert several["remarks"][1] in (found.folder / "report.html").read_text().replace("&#39;", "'")
    assert {arm["group"] for arm in (plain, several)} == {"text"} and tuned["group"] == "full"
    assert all(not (found.folder / "arms" / run["id"] / "artifact").exists() for run in plain["runs"])
    assert all((found.folder / "arms" / run["id"] / "artifact").exists() for run in tuned["runs"])


def test_a_run_that_was_stopped_goes_on_with_the_draws_of_an_undisturbed_one(material, tmp_path):
    bench = open_bench(question(material))
    arm = arms.ready(Arm("one", "demos:k=1,choose=similar+lora:rank=2"), bench)
    todo = job.job(bench, arm, (1e-2,), 0)
    settings = Settings(steps=4, batch_size=4, eval_every=4, patience=3)

    def curve(name, steps, seed):
        """Stopped after so many steps; the state is saved after each."""
        (folder := tmp_path / name).mkdir(exist_ok=True)
        left = [None] * steps
        with torch.random.fork_rng(), attached(bench, todo, specs_of(bench, todo)) as tuned:
            torch.manual_seed(seed)
            problem = problem_of(bench, todo, tuned.train())
            until = replace(problem, loss=lambda chosen: left.pop() or problem.loss(chosen))
            return loop.train(until, settings, 0, saving=loop.Saving(folder, 0.0)).curve

    whole = curve("whole", 4, 0)
    with pytest.raises(IndexError):
        curve("parts", 2, 0)
    assert curve("parts", 4, 1) == whole != curve("other", 4, 1)


def test_an_encoder_of_its_own_says_what_is_alike(material, bench, tmp_path):
    other, words = masked.make("roberta", dtype=torch.float32)
    folder = tmp_path / "En+coder"
    other.save_pretrained(folder)
    words.save_pretrained(folder)
    typed = str(folder).replace("+", r"\+")
    states = {}
    for part in ("train", "test"):
        with torch.no_grad():
            ids = [torch.tensor([words(row["text"])["input_ids"]]) for row in bench.splits.parts()[part]]
            found = [other(input_ids=one, output_hidden_states=True).hidden_states[-1][0].mean(0) for one in ids]
        states[part] = torch.stack(found)
    for choose in ("similar", "nearest", "diverse"):
        ready = arms.ready(Arm("one", f"demos:k=1,choose={choose},encoder={typed}"), bench)
        assert arms._front(ready.label)[0] == ready.demos
    torch.testing.assert_close(bench.states("test", str(folder)), states["test"], rtol=0, atol=1e-5)
    demos = Demos(k=2, choose="nearest", encoder=str(folder))
    for index, query in enumerate(states["test"]):
        (one,) = draw.sets_of(demos, bench, "test", index, Random(0))
        near = torch.cosine_similarity(query[None], states["train"]).sort(descending=True, stable=True)[1]
        assert list(one) == near[:4].tolist()[::-1]
    assert len(drawn(Demos(k=2, choose="diverse", encoder=str(folder)), bench, 0)) == 4
    with pytest.raises(ts.UserError, match="there is no folder /nowhere/at/all"):
        arms.ready(Arm("one", "demos:k=1,choose=similar,encoder=/nowhere/at/all"), bench)


def test_with_k_shots_every_seed_compares_the_rows_that_it_drew_and_the_test_rows_once(material, tmp_path):
    data = {"train": material[2]["train"], "test": material[2]["test"]}
    bench = open_bench(question(material, "demos:k=1,choose=similar", data=data, k_shot=2, seeds=(3, 4)))
    tested, encoder = bench.states("test"), bench.plan.model
    by_another = bench.states("test", encoder)
    for seed in (3, 4):
        own = bench.at(seed)
        states = draw.source(Demos(k=1, choose="similar"), own).states
        literal_ones = torch.nn.functional.normalize(literal_states(own, "train"), dim=-1)
        torch.testing.assert_close(states["train"], literal_ones, rtol=0, atol=1e-5)
        assert len(states["train"]) == len(states["dev"]) == 4 and own.states("test") is tested
        assert len(own.states("train", encoder)) == 4 and own.states("test", encoder) is by_another


def test_where_there_are_no_labels_all_rows_are_one_pool(material):
    name, _, _ = material
    if name == "bert":
        pytest.skip("an encoder writes nothing")
    task = {"kind": "generation", "input": "text", "target": "label", "template": "{text} was"}
    bench = open_bench(question(material, task=task))
    states, demos = literal_states(bench, "train"), Demos(k=3, choose="similar")
    for index, query in enumerate(literal_states(bench, "test")):
        seen = {row for n in range(40) for row in draw.sets_of(demos, bench, "test", index, Random(n))[0]}
        assert seen == literal.half(query, states, list(range(12)), 6)
    arm = arms.ready(Arm("one", "demos:k=3,choose=similar+lora:rank=2"), bench)
    assert arm.trained


def test_an_encoder_with_a_head_averages_the_logits_of_its_head(material, tmp_path):
    name, _, _ = material
    if name != "bert":
        pytest.skip("heads are of encoders")
    task = {"kind": "classification", "by": "head", "template": "{text}"}
    asked = question(material, "demos:k=1,choose=similar,sets=3+head", task=task)
    found = ask(asked, tmp_path / "run", quiet=True)
    (arm,) = found.results["arms"]
    bench = open_bench(asked)
    ready = arms.ready(Arm("one", "demos:k=1,choose=similar,sets=3+head"), bench)
    saved = ts.load(found.folder / "arms" / arm["runs"][0]["id"] / "artifact")
    with attached(bench, job.job(bench, ready, (1e-3,), 0), saved) as tuned:
        sets = own_demos.QueryDemos(ready.demos, bench, bench.task, tuned.positions, None).rows("test", 0)
        with torch.no_grad():
            logits = [[bench.model(torch.tensor([row.input_ids])).logits[0] for row in one] for one in sets]
    mean = torch.stack([torch.stack(one) for one in logits]).mean(0)
    assert [stats[2] for stats in arm["runs"][0]["stats"]] == mean.argmax(-1).tolist()


def test_what_begins_the_sequence_is_kept_apart_from_what_stands_behind_a_text(bench):
    demos = Demos(k=1, sets=2)
    first, behind = (own_demos.QueryDemos(demos, bench, bench.task, 0, front).fronts("test", 3) for front in (None, ""))
    mark = (bench.tokenizer.cls_token_id,) if bench.kind == "encoder" else ()
    assert first == [[mark + tuple(front) for front in one] for one in behind]
    other = own_demos.QueryDemos(demos, bench, bench.task, 0, None)
    assert other.fronts("test", 3) == first != other.fronts("test", 4)  # each seed has its own


@pytest.mark.parametrize("front", [Text("a film"), Anchors(keep=(0,), length=2, text="a film")])
def test_what_stands_behind_a_text_does_not_begin_the_sequence_again(bench, front):
    plain = arms.ready(Arm("one", "lora:rank=2"), bench)
    specs = [SimpleNamespace(spec=one) for one in (front, ts.Prefix(length=2), ts.Soft(length=2))]
    assert questions.in_front(plain, SimpleNamespace(artifacts=specs[:2])) == "a film"
    assert questions.in_front(plain, SimpleNamespace(artifacts=specs)) == ""
    assert questions.in_front(plain, SimpleNamespace(artifacts=specs[1:])) is questions.in_front(plain, Bare()) is None


def test_what_an_encoder_cannot_answer_is_not_tried(material):
    name, _, _ = material
    if name == "gpt2":
        pytest.skip("a decoder can")
    bench = open_bench(question(material))
    with pytest.raises(
        ts.UserError, match="order=entropy lets the model write inputs of its own, for which it takes a"
    ):
        arms.ready(Arm("one", "demos:k=1,order=entropy"), bench)
    if name == "bert":
        bench = open_bench(question(material, task={"kind": "classification", "by": "head", "template": "{text}"}))
        for option in ("order=best", "calibrate=true"):
            told = f"{option} reads the frozen model's answers, and an encoder has none; drop it"
            with pytest.raises(ts.UserError, match=told):
                arms.ready(Arm("one", f"demos:k=1,{option}+head"), bench)


def test_another_encoder_in_the_same_folder_is_another_run(material, bench, tmp_path):
    ids = []
    for seed in (0, 0, 1):
        other, words = masked.make("bert", seed=seed, dtype=torch.float32)
        other.save_pretrained(tmp_path)
        words.save_pretrained(tmp_path)
        fresh = open_bench(question(material))
        ready = arms.ready(Arm("one", f"demos:k=1,choose=nearest,encoder={tmp_path}"), fresh)
        ids.append(job.job(fresh, ready, (), 0).id)
    assert ids[0] == ids[1] != ids[2]


def test_a_label_with_too_few_rows_is_named(material):
    bench = open_bench(question(material))
    bench.splits = replace(bench.splits, train=bench.splits.train[:3])
    with pytest.raises(ts.UserError, match=r"1 demonstrations .* of label 'pos': 0 of 1 rows. Take a smaller k, or"):
        arms.ready(Arm("one", "demos:k=1,choose=similar"), bench)


def test_an_arm_that_diverges_while_it_is_timed_is_told_as_such(bench, monkeypatch):
    def diverged(*given):
        raise loop.Diverged(3, float("nan"))

    monkeypatch.setattr(estimate, "_timed", diverged)
    found = estimate._estimate(bench, Arm("lora", "lora"))
    assert found.problem == "loss nan at step 3; a smaller learning rate may help" and found.costs is None


def test_the_estimate_counts_the_passes_of_every_set(bench, monkeypatch):
    monkeypatch.setattr(estimate, "_seconds", lambda work: 1.0)
    one, many = (
        estimate._estimate(bench, Arm("one", f"demos:k=1,choose=similar,sets={sets},calibrate=true")) for sets in (1, 5)
    )
    assert many.total_seconds == pytest.approx(5 * one.total_seconds)


def test_that_many_rows_are_read_to_see_which_are_alike_is_told(material, monkeypatch):
    monkeypatch.setattr(bench_module, "MANY", 10)
    bench = open_bench(question(material, "demos:k=1,choose=similar"))
    with pytest.warns(Note, match="demonstrations by likeness: the model reads 12 train rows"):
        bench.states("train")
    bench.states("dev")  # and few are not: pytest makes an error of a warning


def test_a_worker_is_handed_what_its_parent_read_to_see_which_are_alike(material, tmp_path, monkeypatch):
    bench = open_bench(question(material, "demos:k=1,choose=similar"))
    states = {part: bench.states(part) for part in plan.PARTS}
    given = pickle.loads(pickle.dumps(workers.Runner(bench, tmp_path, 2, print, print).near().given))
    monkeypatch.setattr(row_vectors, "mean_states", None)  # nobody reads a row again
    workers._start(*given)
    found = {part: workers._bench.states(part) for part in plan.PARTS}
    assert all(torch.equal(found[part], states[part]) for part in plan.PARTS)
    monkeypatch.setattr(workers, "HANDED", sum(one.nbytes for one in states.values()) - 1)
    assert workers.Runner(bench, tmp_path, 2, print, print).near().given[-1] == {}


def test_scoring_long_rows_is_timed_on_a_part_of_them(bench, monkeypatch):
    asked, scored = Arm("one", "demos:k=1"), []
    predict = type(bench.task).predict

    def counted(task, model, rows, tokenizer):
        scored.append(len(rows))
        return predict(task, model, rows, tokenizer)

    monkeypatch.setattr(type(bench.task), "predict", counted)
    estimate._estimate(bench, asked)
    monkeypatch.setattr(estimate, "TOKENS", 1)
    estimate._estimate(bench, asked)
    assert scored[-1] == 1 < scored[0]


@pytest.mark.parametrize("choose", ["nearest", "similar", "balanced", "random"])
def test_a_training_row_is_never_shown_one_that_asks_the_same(material, choose, tmp_path):
    _, _, data = material
    rows = Path(data["train"]).read_text().splitlines()
    (twice := tmp_path / "twice.jsonl").write_text("\n".join([*rows, rows[0], rows[3]]) + "\n")
    bench = open_bench(question(material, data={**data, "train": str(twice)}))
    demos, inputs = Demos(k=1, choose=choose), [row["text"] for row in bench.splits.train]
    assert len(inputs) == 14 > len(set(inputs))
    for index, text in enumerate(inputs):
        for seed in range(20):
            (shown,) = draw.sets_of(demos, bench, "train", index, Random(seed))
            assert text not in [inputs[row] for row in shown]
