"""`tunescope probe` as a person meets it."""

import json
import shutil

import manifests
import pytest
import tiny
import torch
from commands import call
from unlisted import unlisted

import tunescope as ts
from tunescope.probes import names
from tunescope.tasks.kinds.reasoning import Reasoning


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Folders: two models and what was tuned on them; a file of rows."""
    root = tmp_path_factory.mktemp("material")
    for name in ("llama", "t5"):
        model = tiny.make(name, dtype=torch.float32)
        model.save_pretrained(root / name)
        tiny.tokenizer().save_pretrained(root / name)
        specs = {"prefix": ts.Prefix(length=2), "soft": ts.Soft(length=2), "lora": ts.LoRA(rank=2)}
        for method, spec in specs.items():
            with ts.attach(model, spec) as tuned:
                about = {"task": {"template": "{said} w9"}} if method == "prefix" else None
                where = root / f"{name}-{method}"
                ts.save(where, tuned.artifacts, model=model, tokenizer=tiny.tokenizer(), about=about)
    rows = [{"said": f"w{i} w{i + 1} w5"} for i in range(10, 20)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture
def probe(material, monkeypatch, capsys, tmp_path):
    """(exit code, stdout, stderr) of `tunescope probe NAME` on a model and method of the material."""

    def run(name, *words, model="llama", method="prefix"):
        places = ["--model", material / model, "--artifact", material / f"{model}-{method}", "--out", tmp_path / "out"]
        return call(monkeypatch, capsys, "probe", name, *places, *words)

    return run


@pytest.mark.parametrize("model", ["llama", "t5"])
@pytest.mark.parametrize(("name", "method"), [("prefix_bias", "prefix"), ("pattern", "lora"), ("subspace", "prefix")])
def test_it_prints_a_table_and_writes_a_page_pictures_and_numbers(probe, tmp_path, model, name, method):
    code, out, err = probe(name, "--text", "w5 w6 w7", "--text", "w8 w9", model=model, method=method)
    assert (code, err) == (0, "")
    assert "decoder.0.self" in out and ("decoder.1.cross" in out) == (model == "t5")
    assert f"page: {tmp_path / 'out' / 'probe.html'}" in out
    numbers = json.loads((tmp_path / "out" / "probe.json").read_text("utf-8"))
    assert numbers["texts"] == ["w5 w6 w7", "w8 w9"]
    assert numbers["facts"]["probe"] == name
    assert numbers["facts"]["rows"] == 2
    assert len(list((tmp_path / "out").glob("picture-*.svg"))) >= 1


def test_the_words_near_a_soft_prompt_need_no_text(probe):
    code, out, err = probe("neighbours", method="soft")
    assert (code, err) == (0, "")
    assert "soft 0" in out and "soft 1" in out


def test_rows_are_read_in_the_template_that_the_artifact_was_trained_with(probe, material, tmp_path):
    code, out, _ = probe("prefix_bias", "--data", material / "rows.jsonl", "--rows", "3")
    assert code == 0 and "decoder.1.self" in out
    numbers = json.loads((tmp_path / "out" / "probe.json").read_text("utf-8"))
    assert numbers["texts"] == ["w10 w11 w5 w9", "w11 w12 w5 w9", "w12 w13 w5 w9"]


@pytest.mark.parametrize(
    ("model", "template", "filled"),
    [("llama", "{said} w9 {mask}", "w10 w11 w5 w9"), ("t5", "{said} w9 {mask} w4", "w10 w11 w5 w9 <extra_id_0> w4")],
)
def test_rows_are_read_where_a_template_has_a_place_for_the_answer(probe, material, tmp_path, model, template, filled):
    folder = material / f"{model}-masked"
    shutil.copytree(material / f"{model}-prefix", folder)
    manifest = json.loads((folder / "tunescope.json").read_text())
    manifest["about"] = {"task": {"template": template, "by": "words"}}
    manifests.write(folder, manifest)
    code, _, err = probe("prefix_bias", "--data", material / "rows.jsonl", "--rows", "1", model=model, method="masked")
    if model == "t5":  # the tiny tokenizer has no sentinel, which is said as in a comparison
        assert code == 2 and "fills where its tokenizer has <extra_id_0>" in err
        return
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "out" / "probe.json").read_text("utf-8"))["texts"] == [filled]


def test_rows_that_are_reasoned_about_end_in_the_words_that_ask_for_an_answer(probe, material, tmp_path):
    task = Reasoning(input="said", template="Q: {said}\nA:", max_new_tokens=3).describe()
    assert task["asked"] == "Q: {said}\nA: The answer is"
    folder = material / "llama-reasoned"
    shutil.copytree(material / "llama-prefix", folder)
    manifest = json.loads((folder / "tunescope.json").read_text())
    manifests.write(folder, manifest | {"about": {"task": json.loads(json.dumps(task))}})
    code, _, err = probe("prefix_bias", "--data", material / "rows.jsonl", "--rows", "1", method="reasoned")
    assert (code, err) == (0, "")
    (text,) = json.loads((tmp_path / "out" / "probe.json").read_text("utf-8"))["texts"]
    assert text == "Q: w10 w11 w5\nA: The answer is"


def test_without_a_name_and_in_help_the_probes_are_listed(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "160")
    code, out, err = call(monkeypatch, capsys, "probe")
    assert (code, err, out.splitlines()) == (0, "", names.lines())
    _, told, _ = call(monkeypatch, capsys, "probe", "--help")
    assert all(line.partition(":")[0] in told and line.partition(": ")[2][:40] in told for line in names.lines())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["patern"], "no probe 'patern'. Did you mean 'pattern'? Probes: neighbours, pattern, prefix_bias,"),
        (["pattern"], "looks at texts: give --text TEXT (as often as you like) or --data FILE"),
        (["pattern", "--text", "w5", "--data", "x.jsonl"], "(as often as you like) or --data FILE, and not both"),
        (["pattern", "--text", " "], "--text is empty"),
        (["pattern", "--data", "rows.jsonl", "--rows", "0"], "--rows is 0; give at least 1"),
        (
            ["pattern", "--text", "w5 " * 80],
            "Text 1 has 80 tokens, and beside a context of 0 the model takes 64: shorten",
        ),
        (["pattern", "--text", "w5", "--rows", "2"], "--rows is of the rows of --data, and --text was given"),
        (["pattern", "--text", "w5", "--text-field", "said"], "--text-field is of the rows of --data, and --text was"),
        (["neighbours", "--text", "w5", "--rows", "2"], "neighbours reads no text: leave --text and --rows out"),
        (["neighbours"], "prefix:length=2 has no embeddings in the place of tokens; soft and text have"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_line(probe, words, told):
    code, out, err = probe(*words)
    assert (code, out) == (2, "")
    assert told in err
    assert err.startswith("error: ") and err.count("\n") == 1


def test_an_artifact_of_another_base_is_told_before_a_template_that_its_model_lacks(
    material, monkeypatch, capsys, tmp_path
):
    model, bert = tiny.make("llama", dtype=torch.float32), tiny.make("bert", dtype=torch.float32)
    with ts.attach(model, ts.Prefix(length=2)) as tuned:
        ts.save(tmp_path / "a", tuned.artifacts, model=model, about={"task": {"template": "{said} w9", "by": "words"}})
    bert.save_pretrained(tmp_path / "bert")
    tiny.tokenizer().save_pretrained(tmp_path / "bert")
    words = ["--model", tmp_path / "bert", "--artifact", tmp_path / "a", "--data", material / "rows.jsonl"]
    code, _, err = call(monkeypatch, capsys, "probe", "pattern", *words, "--out", tmp_path / "out")
    assert code == 2 and "was made for another base model" in err


def test_what_others_made_in_the_folder_is_kept(probe, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "picture-of-mine.svg").write_text("mine")
    for _ in range(2):  # its own page is written again
        assert probe("prefix_bias", "--text", "w5")[0] == 0
    assert (tmp_path / "out" / "picture-of-mine.svg").read_text() == "mine"
    (tmp_path / "out" / "probe.html").write_text("mine")
    code, _, err = probe("prefix_bias", "--text", "w5")
    assert code == 2 and "probe.html is there and is not a page of tunescope; move it away, or name another: --" in err
    assert (tmp_path / "out" / "probe.html").read_text() == "mine"
    (tmp_path / "out" / "probe.html").unlink()  # what stands without a page of ours is not ours
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    code, _, err = probe("prefix_bias", "--text", "w5")
    assert code == 2 and "is there without a probe.html; move it away, or name another: --out" in err
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_an_artifact_with_nothing_of_the_kind_is_one_clear_line(probe):
    code, _, err = probe("prefix_bias", "--text", "w5 w6", method="lora")
    assert code == 2
    assert (
        "lora:rank=2 puts nothing before the text, so no head attends to a context. Type: tunescope probe pattern"
        in err
    )


def test_options_that_are_missing_and_rows_without_a_text_are_told(material, monkeypatch, capsys):
    code, _, err = call(monkeypatch, capsys, "probe", "pattern", "--model", material / "llama")
    assert code == 2 and "probe pattern needs --artifact" in err
    places = ["--model", material / "llama", "--artifact", material / "llama-lora"]
    code, _, err = call(monkeypatch, capsys, "probe", "pattern", *places, "--data", material / "rows.jsonl")
    assert code == 2 and "has the fields said: name the one with the text by --text-field, or give --text" in err
    rows = ["--data", material / "rows.jsonl", "--out", material / "named"]
    code, out, err = call(monkeypatch, capsys, "probe", "pattern", *places, *rows, "--text-field", "said")
    assert (code, err) == (0, "") and "page: " in out
    code, _, err = call(monkeypatch, capsys, "probe", "pattern", *places, *rows, "--text-field", "none")
    assert code == 2 and "has the fields said: name the one with the text by --text-field" in err


def test_a_family_whose_attention_is_not_reached_is_one_clear_line(material, monkeypatch, capsys, tmp_path):
    model = unlisted("gpt_neox_japanese")
    model.save_pretrained(tmp_path / "japanese")
    tiny.tokenizer().save_pretrained(tmp_path / "japanese")
    with ts.attach(model, ts.Full()) as tuned:
        ts.save(tmp_path / "full", tuned.artifacts, model=model)
    places = ["--model", tmp_path / "japanese", "--artifact", tmp_path / "full", "--text", "w5"]
    code, _, err = call(monkeypatch, capsys, "probe", "pattern", *places)
    assert code == 2 and "'gpt_neox_japanese' computes attention by itself" in err
