"""Arms whose rows are turns of a chat: what the model reads is the chat, whatever stands in front."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import tunescope as ts
from tunescope.comparison import arms
from tunescope.comparison.comparison import compare
from tunescope.exchange.serving.chat_template import messages
from tunescope.probes import study
from tunescope.probes.anchors.compression import start_of
from tunescope.probes.anchors.isolation import control
from tunescope.probes.anchors.request import AnchorRequest, rounds_of
from tunescope.probes.study import ProbeRequest, run
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts.chat_template import head_saying
from tunescope.tasks.prompts.turns import Turns
from tunescope.trial import questions
from tunescope.trial.arm import Arm
from tunescope.trial.demos import draw
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.specs import specs_at
from tunescope.trial.train.settings import Settings

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}<s> {{ m.content }} <e> {% elif m.role == 'user' %}"
    "<u> {{ m.content }} <a> {% else %}{{ m.content }} <e> {% endif %}{% endfor %}"
)
TASK = {"kind": "classification", "words": {"neg": "bad", "pos": "good"}, "chat": True, "template": "{text} Label:"}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("chat")
    model, data = tinyrun.write(folder)
    names = ["[PAD]", "[UNK]", "[EOS]", *tinyrun.WORDS, "<s>", "<u>", "<a>", "<e>"]
    made = Tokenizer(WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", model_max_length=64
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(model)
    torch.manual_seed(0)
    GPT2LMHeadModel(
        GPT2Config(vocab_size=19, n_embd=16, n_layer=2, n_head=2, n_positions=64, pad_token_id=0, eos_token_id=2)
    ).save_pretrained(model)
    return model, data


def bench_of(material: tuple[str, dict[str, str]], **task: Any) -> Any:
    return open_bench(Plan(model=material[0], data=material[1], task=TASK | task))


def turn(row: Any, answer: str = "") -> list[dict[str, str]]:
    said = [{"role": "user", "content": f"{row['text']} Label:"}]
    return said + ([{"role": "assistant", "content": answer}] if answer else [])


@pytest.mark.parametrize("system", ["", "bright"])
@pytest.mark.parametrize(
    "text", ["lora:rank=2", "demos:k=1", "demos:k=1,choose=nearest+lora:rank=2", "text:text=dull film"]
)
@torch.no_grad()
def test_what_the_model_answers_is_what_it_answers_to_the_chat(material: Any, text: str, system: str) -> None:
    bench = bench_of(material, system=system)
    if system and text.startswith("text"):
        with pytest.raises(ts.UserError, match="stands alone: leave --system out, or the text"):
            arms.ready(Arm(text, text), bench)
        return
    ready = arms.ready(Arm(text, text), bench)
    shown = draw.drawn(ready.demos, bench, 0) if ready.demos and not ready.demos.each else ()
    with ts.attach(bench.model, *specs_at(ready, bench, shown, 0), tokenizer=bench.tokenizer) as tuned:
        (row, *_) = questions.rows_of(ready, bench, tuned, "test", 0)
        got = bench.model(input_ids=torch.tensor([row.input_ids])).logits[0, -1]
    rows, words = bench.splits.train, TASK["words"]
    if "nearest" in text:
        shown = draw.sets_of(ready.demos, bench, "test", 0, None)[0]
    said = "dull film" if text.startswith("text") else system
    head = [{"role": "system", "content": said}] if said else []
    chat = [one for index in shown for one in turn(rows[index], words[rows[index]["label"]])]
    query = next(one for one in bench.splits.test if one.line == row.row)
    ids = bench.tokenizer.apply_chat_template(
        [*head, *chat, *turn(query)], return_tensors="pt", return_dict=False, add_generation_prompt=True
    )
    torch.testing.assert_close(got, bench.model(input_ids=ids).logits[0, -1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("demos:k=1+text:text=dull", "stands alone: leave demonstrations out, or the text"),
        ("text:text=dull+text:text=film", "stands alone: leave another text out"),
        ("template", "looks for what stands around a row's words, and with --chat a row is a turn of a chat"),
        ("demos:k=1,order=entropy", "lets the model write rows of its own, and with --chat"),
    ],
)
def test_what_has_no_place_in_a_chat_is_refused(material: Any, text: str, message: str) -> None:
    with pytest.raises(ts.UserError, match=message):
        arms.ready(Arm(text, text), bench_of(material))


@pytest.mark.parametrize("system", ["", "bright"])
def test_what_acts_on_label_words_finds_them_behind_what_the_chat_begins_with(material: Any, system: str) -> None:
    bench = bench_of(material, system=system)
    ready = arms.ready(Arm("demos:k=1+reweight", "demos:k=1+reweight"), bench)
    shown = draw.drawn(ready.demos, bench, 0)
    before, spec = specs_at(ready, bench, shown, 0)
    ids = bench.tokenizer(before.text)["input_ids"]
    said = [bench.tokenizer.decode([ids[int(at)] for at in one.split("/")]) for one in spec.anchors]
    assert said == [TASK["words"][bench.splits.train[index]["label"]] for index in shown]


@pytest.mark.parametrize("system", ["", "bright"])
def test_anchors_are_the_answers_of_a_chats_earlier_turns(material: Any, system: str) -> None:
    bench = bench_of(material, system=system)
    (found,) = rounds_of(AnchorRequest(replace(bench.plan, seeds=(3,)), k=2, rows=4), bench)
    words, rows = TASK["words"], {row["text"]: row for row in bench.splits.train}
    head = [{"role": "system", "content": system}] if system else []
    for prompt in found.prompts:
        text = bench.tokenizer.decode(prompt.spans.ids)
        assert text.startswith("<s> bright <e> <u>" if system else "<u>")
        asked = [one.partition(" Label: <a>")[0].strip() for one in text.split("<u>")[1:]]
        chat = [one for said in asked for one in turn(rows[said], words[rows[said]["label"]])]
        query = next(one for one in bench.splits.test if one.line == prompt.query.row)
        whole = bench.tokenizer.apply_chat_template([*head, *chat, *turn(query)], return_dict=False)
        assert list(prompt.ids) == whole
        names = [rows[said]["label"] for said in asked]
        assert [bench.tokenizer.decode([whole[at] for at in place]) for place in prompt.spans.labels] == [
            words[name] for name in names
        ]
        assert list(prompt.spans.names) == names
        assert bench.tokenizer.decode(start_of(prompt.spans)) == ("<s> bright <e>" if system else "")
    drawn = {at for seed in range(99) for word in control(found.prompts[0].spans, seed) for at in word}
    assert min(drawn) >= len(start_of(found.prompts[0].spans))


def test_a_prompt_that_is_looked_for_is_what_the_system_says(material: Any) -> None:
    assert arms.ready(Arm("p", "pez:length=2"), bench_of(material)).search is not None
    with pytest.raises(ts.UserError, match="In a chat a text is what the system says: leave --system out"):
        arms.ready(Arm("p", "pez:length=2"), bench_of(material, system="dull"))


def test_without_a_place_for_earlier_turns_a_prefix_does_not_begin_as_them(material: Any) -> None:
    bench = bench_of(material)
    assert arms.ready(Arm("p", "prefix:length=4"), bench).specs[0].init_from == "demos"
    bench.tokenizer.chat_template = "{{ '<s> ' if messages | length > 2 }}" + TEMPLATE
    bench.task = bench.task.prepare({"train": bench.splits.train}, bench.tokenizer, model_kind="decoder")
    ready = arms.ready(Arm("p", "prefix:length=4"), bench)
    assert ready.specs[0].init_from == "tokens" and "earlier turns of a chat" in ready.remarks[0]
    with pytest.raises(ts.UserError, match="demonstrations are earlier turns of a chat, and its chat template writes"):
        arms.ready(Arm("d", "demos:k=1"), bench)


def test_a_whole_comparison_and_what_it_leaves(material: Any, tmp_path: Path) -> None:
    found = compare(
        material[0],
        material[1],
        arms=["demos:k=1", "lora:rank=2", "prefix:length=4", "random:length=2,candidates=2,batch=4"],
        task=Classification(**{key: value for key, value in TASK.items() if key != "kind"}),
        settings=Settings(steps=6, batch_size=8, eval_every=3),
        seeds=1,
        out=tmp_path / "run",
        quiet=True,
    )
    task = found.results["task"]
    assert task["chat"]["before"] == "<u> " and task["template"] == "{text} Label:"
    assert "day" not in task["chat"]  # this chat template writes none
    assert ts.resume(tmp_path / "run").results["arms"] == found.results["arms"]
    (searched,) = [arm for arm in found.results["arms"] if arm["name"].startswith("random")]
    (text,) = ts.load(tmp_path / "run" / "arms" / searched["runs"][0]["id"] / "artifact")
    assert text.spec.text.startswith("<s> ") and text.spec.text.endswith(" <e> ")
    shown = next(arm for arm in found.results["arms"] if arm["name"] == "demos:k=1")
    artifact = tmp_path / "run" / "arms" / shown["runs"][0]["id"] / "artifact"
    (text,) = ts.load(artifact)
    tokenizer = AutoTokenizer.from_pretrained(material[0])
    made = messages(text.spec.text, json.loads((artifact / "tunescope.json").read_text())["about"]["task"], tokenizer)
    assert [one["role"] for one in made] == ["user", "assistant"] * 2
    assert tokenizer.apply_chat_template(made, tokenize=False) == text.spec.text
    _, page = run(
        ProbeRequest("pattern", material[0], str(artifact), (), material[1]["test"], 2, "", str(tmp_path / "p"), "")
    )
    assert "&lt;u&gt;" in Path(page).read_text()
    (tmp_path / "edges.jsonl").write_text(json.dumps({"text": "  film \n"}) + "\n")
    request = ProbeRequest("pattern", material[0], str(artifact), (), str(tmp_path / "edges.jsonl"), 1, "", "", "")
    for trims, said in ((False, "<u>   film \n Label: <a>"), (True, "<u> film \n Label: <a>")):
        turns = replace(Turns(**task["chat"]), trims=trims)
        assert study._texts(request, tokenizer, "decoder", turns, is_begun=True) == [said]


def test_a_probe_reads_all_turns_of_a_conversation(
    material: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(material)
    said = [*turn({"text": "dull"}, "bad"), *turn({"text": "film"}, "good")]
    (tmp_path / "talk.jsonl").write_text(json.dumps({"messages": said}) + "\n")
    request = ProbeRequest("pattern", material[0], "", (), str(tmp_path / "talk.jsonl"), 1, "", "", "")
    monkeypatch.setattr(study, "_task", lambda asked: {"template": "{input}"})
    texts = study._texts(request, bench.tokenizer, "decoder", bench.task.turns, is_begun=False)
    assert texts == [bench.tokenizer.apply_chat_template(said[:-1], tokenize=False).rstrip()]


def test_what_no_seed_but_a_later_one_draws_is_checked_too(material: Any, tmp_path: Path) -> None:
    def said(text: str, answer: str, system: str = "") -> dict[str, Any]:
        head = [{"role": "system", "content": system}] if system else []
        return {"messages": [*head, {"role": "user", "content": text}, {"role": "assistant", "content": answer}]}

    texts = [f"{one} {other}" for one in ("film", "plot", "dull") for other in ("film", "plot", "dull", "a")]
    rows = [said(text, ("bad", "good")[at % 2], "bright" if at < 2 else "") for at, text in enumerate(texts)]
    files = {"train": rows, "test": [said("a film", "bad"), said("a plot", "good")]}
    for name, some in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    task = {"kind": "classification", "text": "input", "label": "target", "chat": True, "template": "{input}"}
    data = {name: str(tmp_path / f"{name}.jsonl") for name in files}

    def refused(*seeds: int) -> str:
        try:
            open_bench(Plan(model=material[0], data=data, task=task, k_shot=1, seeds=seeds))
        except ts.UserError as problem:
            return str(problem)
        return ""

    alone = {seed: refused(seed) for seed in range(8)}
    good, bad = (next(seed for seed, reason in alone.items() if bool(reason) is fails) for fails in (False, True))
    for seeds in ((good, bad), (bad, good)):
        assert "The system" in alone[bad] and refused(*seeds) == alone[bad]


@pytest.mark.parametrize("system", ["", "dull film"])
def test_words_in_front_are_the_messages_that_they_were_made_of(material: Any, system: str) -> None:
    bench = bench_of(material, system=system)
    rows = bench.splits.train[:3]
    text = bench.task.begins + "".join(bench.task.demonstrations([row], 1, 0) for row in rows)
    made = messages(text, bench.task.describe(), bench.tokenizer)
    head = [{"role": "system", "content": system}] if system else []
    assert made == head + [one for row in rows for one in turn(row, TASK["words"][row["label"]])]
    (hard,) = arms.in_chat((ts.Text(text="bright a"),), bench_of(material), shown=False)
    assert messages(hard.text, bench_of(material).task.describe(), bench.tokenizer) == [
        {"role": "system", "content": "bright a"}
    ]
    with pytest.raises(ts.UserError, match="cannot be told apart again"):
        messages("film good", bench.task.describe(), bench.tokenizer)


@pytest.mark.parametrize(
    "written_by",
    [
        TEMPLATE.replace("<u>", " <u>").replace(
            "{{ m.content }} <e> {% endif %}{% endfor %}", "{{ m.content }}{% endif %}{% endfor %}"
        ),
        TEMPLATE.replace("{{ m.content }} <e> {% endif %}{% endfor %}", "{{ m.content }} {% endif %}{% endfor %}"),
        TEMPLATE.replace("<a> {% else %}", "<a> {% else %}{{ 'plot ' if loop.last else '' }}"),
        TEMPLATE.replace(
            "<e> {% endif %}{% endfor %}", "{{ '[EOS]' if loop.last else '<e>' }} {% endif %}{% endfor %}"
        ),
        "{{ '<u> ' if messages[0].role == 'user' }}"
        + TEMPLATE.replace("<s> {{ m.content }} <e> ", "<u> {{ m.content }} ").replace(
            "<u> {{ m.content }} <a>",
            "{{ '' if loop.index0 < 2 and (loop.first or messages[0].role == 'system') "
            "else '<u> ' }}{{ m.content }} <a>",
        ),
    ],
    ids=[
        "nothing ends an answer",
        "a space ends it",
        "the last answer is begun otherwise",
        "the last answer ends otherwise",
        "the system stands in the first turn",
    ],
)
def test_turns_are_messages_again_whatever_ends_an_answer(material: Any, written_by: str) -> None:
    bench = bench_of(material)
    bench.tokenizer.chat_template = written_by
    task = bench.task.prepare(bench.splits.parts(), bench.tokenizer, model_kind="decoder")
    rows = bench.splits.train[:2]
    text = task.begins + "".join(task.demonstrations([row], 1, 0) for row in rows)
    made = messages(text, task.describe(), bench.tokenizer)
    assert made == [one for row in rows for one in turn(row, TASK["words"][row["label"]])]
    hard = head_saying(bench.tokenizer, "bright a")
    assert messages(hard, task.describe(), bench.tokenizer) == [{"role": "system", "content": "bright a"}]


def test_demonstrations_that_cannot_be_told_apart_are_not_what_the_system_says(material: Any) -> None:
    bench = bench_of(material)
    bench.tokenizer.chat_template = TEMPLATE.replace("<s> {{ m.content }} <e> ", "{{ m.content }} <e> ")
    task = bench.task.prepare(bench.splits.parts(), bench.tokenizer, model_kind="decoder").describe()
    assert messages("bright a <e> ", task, bench.tokenizer) == [{"role": "system", "content": "bright a"}]
    with pytest.raises(ts.UserError, match="cannot be told apart again"):
        messages("<u> film Label: <a> good <e> dull <e> ", task, bench.tokenizer)


def test_turns_are_messages_again_where_the_chat_template_takes_no_system(material: Any) -> None:
    bench = bench_of(material)
    bench.tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
    )
    row = bench.splits.train[0]
    text = bench.task.begins + bench.task.demonstrations([row], 1, 0)
    assert messages(text, bench.task.describe(), bench.tokenizer) == turn(row, TASK["words"][row["label"]])
