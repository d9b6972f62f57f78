"""What a newcomer types wrong is answered with what there is and what to type."""

import json
from pathlib import Path

import pytest
import tinyrun
import torch
import transformers
from commands import call

from tunescope.errors import UserError
from tunescope.lab.worlds.families import configs
from tunescope.models.load import load_model
from tunescope.system import machine

LABELS = {"neg": "0", "pos": "1"}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("material")
    model, _ = tinyrun.write(folder)
    rows = [(row["text"], LABELS[row["label"]]) for row in tinyrun.rows(60, 2)]
    path = folder / "reviews.csv"
    path.write_text("review,stars\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return model, path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            [],
            "reviews.csv line 2 has no field 'text'. It has: review, stars. Say which field is meant: --text-field ",
        ),
        (
            ["--text-field", "review"],
            "has no field 'label'. It has: review, stars. Say which field is meant: --label-field ",
        ),
        (
            ["--template", "{revew} :"],
            "review, stars. A template names fields of the file: --template '{review} :",
        ),
        (
            ["--text-field", "review", "--label-field", "stars", "--template", "{text} It was"],
            "It has: review, stars. A template names fields of the file: --template '{review} It was'",
        ),
        (
            ["--text-field", "review", "--label-field", "stars", "--template", "It was"],
            'as {field} and no more, such as --template "{text} It was"',
        ),
        (
            ["--text-field", "stars", "--label-field", "review"],
            "60 rows, of which 2 distinct in stars, cannot be cut into train and dev and test. Give more rows, or a ",
        ),
        (
            ["--task", "generation", "--input", "review"],
            "'target'. It has: review, stars. Say which field is meant: --target-",
        ),
        (["--text", "review", "--label", "stars", "--words", "0=bad"], "beside the others: --words 0=bad,1=WORD"),
        (["--device", "cuda:9"], "--device 'cuda:9' is not here; this machine has: cpu"),
        (["--device", "gpu"], "--device 'gpu' is not here; this machine has: cpu"),
    ],
)
def test_a_mistake_is_answered_with_what_to_type(material, monkeypatch, capsys, words, told):
    model, path = material
    code, _, err = call(monkeypatch, capsys, "check", path, "--model", model, *words)
    assert code == 2 and told in err.splitlines()[-1]


def test_a_device_is_one_that_torch_sees(monkeypatch):
    assert machine.device_named("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert machine.device_named("cuda") == torch.device("cuda") != machine.device_named("cuda:1")
    with pytest.raises(UserError, match=r"has: cpu, cuda:0, cuda:1\. Type: --device cuda:1$"):
        machine.device_named("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(
        UserError,
        match=rf"has: cpu\. torch {torch.__version__} sees no other\. Type: --device cpu$".replace("+", r"\+"),
    ):
        machine.device_named("cuda")


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_a_folder_without_a_tokenizer_is_named_and_none_is_made_up(family, tmp_path):
    kind = {"llama": transformers.LlamaForCausalLM, "t5": transformers.T5ForConditionalGeneration}[family]
    kind(configs()[family]).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r" has no tokenizer: save one there with tokenizer\.save_pretrained"):
        load_model(str(tmp_path))
    tinyrun.tokenizer().save_pretrained(tmp_path)
    assert len(load_model(str(tmp_path))[1]) == len(tinyrun.tokenizer())


@pytest.mark.parametrize(("kind", "takes"), [("vit", "pixel_values"), ("whisper", "input_features")])
def test_a_model_of_pictures_or_sound_is_not_asked_for_a_tokenizer(kind, takes, tmp_path):
    transformers.AutoConfig.for_model(kind).save_pretrained(tmp_path)
    for _ in range(2):
        with pytest.raises(UserError, match=f" is a '{kind}', which reads {takes} and no text; only models of text"):
            load_model(str(tmp_path))
        tinyrun.tokenizer().save_pretrained(tmp_path)  # with one it is no more a model of text


def test_labels_that_are_numbers_are_told_of_with_words(material, monkeypatch, capsys):
    model, path = material
    words = ["check", path, "--model", model, "--text-field", "review", "--label-field", "stars", "--arms", "zero-shot"]
    vocabulary = Path(model) / "tokenizer.json"
    made = json.loads(vocabulary.read_text())
    made["model"]["vocab"] |= {"0": 14, "1": 15}
    vocabulary.write_text(json.dumps(made))
    code, out, _ = call(monkeypatch, capsys, *words)
    assert code == 0 and "note: The labels are numbers, and the model is asked for the words '0', '1'." in out
    assert "--words 0=WORD,1=WORD" in out
    hint = (
        "if no text would go on like that, write how one would, with words to choose from: --template '{review} It was'"
    )
    assert f"{hint} --words LABEL=WORD,LABEL=WORD\n" in out
    _, out, _ = call(monkeypatch, capsys, *words, "--template", "{review} :")
    assert "if no text would go on like that" not in out


def test_an_option_that_is_not_there_is_answered_with_the_help_of_its_verb(monkeypatch, capsys):
    code, _, err = call(monkeypatch, capsys, "check", "rows.csv", "--model", "m", "--text-colum", "review")
    assert code == 2 and err.endswith("Did you mean --text-field? Type: tunescope check --help\n")
    code, _, err = call(monkeypatch, capsys, "chek", "rows.csv")
    assert code == 2 and err.endswith(" Type: tunescope --help\n")


def test_a_machine_that_others_use_is_told_of_where_time_is_measured(monkeypatch):
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    for load, told in ((4.9, ""), (14.0, "about 14 processes share this machine's 2 cores now: ")):
        monkeypatch.setattr("psutil.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert machine.busy().startswith(told) and bool(told) == bool(machine.busy())
    assert machine.busy().endswith("what was timed here may be 7 times as slow as on an idle machine")
