"""The command line as a person meets it: exit codes, one line for each mistake, Ctrl-C, a quick --help."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tinyrun

from tunescope.cli import app
from tunescope.cli.options import PlanOptions, TaskOptions, question
from tunescope.cli.output import print_run
from tunescope.errors import UserError
from tunescope.trial import command as the_command
from tunescope.trial import plan_json
from tunescope.trial.train.settings import Settings

QUICK = ["--arms", "zero-shot", "lora:rank=2", "--steps", "4", "--seeds", "1", "--trials", "1", "--workers", "1"]


HELP = """
import sys, time
sys.argv = ["tunescope", "--help"]
from tunescope.cli.app import main
try:
    main()
except SystemExit:
    pass
slow = {"torch", "transformers", "numpy", "psutil", "filelock"}
heavy = sorted({name.partition(".")[0] for name in sys.modules} & slow)
print("heavy:", heavy, "cpu:", time.process_time())
"""
LEAST = "import time, cyclopts, rich.console, rich.panel, rich.table; print(time.process_time())"


def test_help_is_quick_and_imports_nothing_heavy(tmp_path):
    """Beside the import of what every command line needs, in processor time: machines differ, and are busy.

    The best of up to ten runs. Files are compiled by the first, as by an installation.
    """
    compiled = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}

    def said(program):
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=compiled)

    for _ in range(10):
        least, done = float(said(LEAST).stdout), said(HELP)
        assert "compare" in done.stdout
        assert "heavy: []" in done.stdout
        if float(done.stdout.rpartition(" ")[2]) < 3 * least:
            return
    raise AssertionError(f"{done.stdout}, beside {least}")


def test_every_option_is_explained(tunescope, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for verb in ("compare", "check", "demo", "resume", "predict", "doctor", "export", "import"):
        _, out, _ = tunescope(verb, "--help")
        options = re.findall(r"│ (?:\*  )?(--\S+(?: \S+)*)  +(.*?) *│", out)
        assert options
        assert [option for option, told in options if len(told.split()) < 3] == []


def test_compare_writes_the_page_and_the_artifact_and_report_shows_it_again(tunescope, material, tmp_path):
    model, data = material
    words = ["compare", model, data["train"], "--dev", data["dev"], "--test", data["test"], *QUICK]
    code, out, err = tunescope(*words, "--out", tmp_path / "run")
    assert code == 0
    assert "lora:rank=2" in out and "Verdict: " in out and f"page: {tmp_path}/run/report.html" in out
    assert re.search(r"lora:rank=2  lr 0\.\d+ seed 0  done  dev 0\.\d+  4 steps in ", err)
    code, shown, _ = tunescope("report", tmp_path / "run")
    assert code == 0
    assert "lora:rank=2" in shown
    code, again, _ = tunescope("resume", tmp_path / "run", "--workers", "1")
    assert (code, again) == (0, out)


def test_the_command_in_the_results_asks_the_same_question(material, monkeypatch, tmp_path):
    model, data = material
    asked = question(
        model,
        data["train"],
        PlanOptions(
            dev=data["dev"],
            arms=("lora", "demos:k=2"),
            budget=(64, 128),
            seeds=(4, 5),
            lr=(0.1, 0.01),
            steps=30,
            batch_size=4,
            schedule="cosine",
            patience=2,
        ),
        TaskOptions(label_field="label", words=("neg=dull,pos=bright",), template='{text} a "b"'),
    )
    monkeypatch.chdir(Path(model).parent)
    seen = []
    done = SimpleNamespace(folder=None, results={"arms": [{"status": "done"}]})
    monkeypatch.setattr("tunescope.comparison.comparison.ask", lambda plan, folder, **named: seen.append(plan) or done)
    monkeypatch.setattr("tunescope.cli.side_by_side.print_run", lambda folder, results: None)
    monkeypatch.setattr(sys, "argv", shlex.split(the_command.command(asked)))
    handler = signal.getsignal(signal.SIGTERM)
    app.main()
    signal.signal(signal.SIGTERM, handler)
    assert seen[0].data == asked.data
    assert {**plan_json.to_json(seen[0]), "model": model} == plan_json.to_json(asked)


def test_rates_and_a_number_of_rates_together_are_refused():
    with pytest.raises(UserError, match=r"--lr says which .* --trials how many .*; give one"):
        question("m", "d.jsonl", PlanOptions(lr=(0.1,), trials=2))
    assert question("m", "d.jsonl", PlanOptions(lr=(0.1,))).trials == 3


def test_check_says_what_is_in_the_data_and_what_it_would_take(tunescope, material):
    model, data = material
    words = [
        "check",
        data["train"],
        "--model",
        model,
        "--test",
        data["test"],
        "--arms",
        "zero-shot",
        "lora",
        "lora:sites=attn.w",
    ]
    code, out, _ = tunescope(*words, "--steps", "10")
    assert code == 0
    assert re.search(r"train: \d+ rows; input tokens \d+ to \d+ \(middle \d+, 95 % up to \d+\)", out)
    assert "labels: " in out
    assert "the model takes 64 tokens, its context included" in out
    first = json.loads(Path(data["train"]).read_text("utf-8").splitlines()[0])
    assert f'line 1 as the model reads it: "{first["text"]} Label:" -> "{first["label"]}"' in out
    assert re.search(r"lora: [\d,]+ parameters, \d+ ms a step, .* MB beside the model", out)
    assert re.search(r"lora:sites=attn.w: .* asks for site 'attn.w'", out)
    assert "Estimated from 3 real steps of each arm" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arms", "lora:rank=0", "--steps", "2"], r"every arm was refused; lora:rank=0: .* takes a rank in \[1, "),
        (["--arms", "lora", "--budget", "1"], "every arm was refused; lora: .* cannot be had for 1 param"),
        (["--arms", "lora", "soft", "--budget", "40"], "The budget leaves no delta to compare with a context"),
        (["--arms", "zero-shot", "--halving"], "--halving has no effect where no arm is trained"),
    ],
)
def test_check_refuses_what_compare_would_not_begin(tunescope, material, words, message):
    told = tunescope("check", material[1]["train"], "--model", material[0], "--forgetting", "none", *words)
    assert told[0] == 2 and re.search(message, told[2].splitlines()[-1])
    assert "type: tunescope compare" not in told[1] and "together at most" not in told[1]


def test_arms_lists_every_method_with_its_fields(tunescope):
    code, out, _ = tunescope("arms")
    assert code == 0
    for line in ("zero-shot: ", "demos: ", "prefix: ", "lora: ", "a budget sets: rank", "example: lora:rank=8"):
        assert line in out
    rates = dict(re.findall(r"^  (\w+): (?:.*\n    )*.*; learning rates: (.*)", out, re.MULTILINE))
    assert {name for name, told in rates.items() if told == "none"} == {
        "text",
        "anchors",
    }  # of these nothing is trained


def test_doctor_says_whether_a_model_is_reached(tunescope, material):
    code, out, _ = tunescope("doctor", "--model", material[0])
    assert code == 0
    assert "torch 2" in out
    assert "all 2 modules call the tunescope function" in out
    assert "self.q" in out
    assert "not tried" not in out


def test_doctor_says_where_no_twin_can_be_tried(tunescope, material, monkeypatch):
    monkeypatch.setattr("tunescope.attachment.proof.twin_config", lambda _config: None)
    code, out, _ = tunescope("doctor", "--model", material[0])
    assert code == 0
    assert "whether contexts are right with padding and windows was not tried: its configuration does not say" in out


ROWS = "".join(json.dumps(row) + "\n" for row in tinyrun.rows(10, 9))
ONE_LABEL = ROWS.replace('"neg"', '"pos"')


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (None, [], r"Cannot read \S+rows.jsonl: No such file or directory"),
        ("", [], r"\S+rows.jsonl is empty"),
        (ROWS + "{\n", [], r"\S+rows.jsonl line 11 is not JSON"),
        (ROWS + '{"text": "a", "label": null}\n' * 200, [], "line 11: 'label' .* of lines 12, 13, 14, 15 and 195 more"),
        (ROWS + '{"text": "a"}\n', [], r"rows.jsonl line 11 has no field 'label'"),
        (ROWS, ["--text-field", "txt"], r"has no field 'txt'. Did you mean 'text'"),
        (ONE_LABEL, [], "have one label only, 'pos'"),
        (ROWS, ["--words", "neg"], "--words has 'neg'; give LABEL=WORD for each label, as in --words neg=bad,pos"),
        (
            ROWS,
            ["--input-field", "text"],
            "--input-field is for --task choice or generation or reasoning, and this is --task classification",
        ),
        (ROWS, ["--out", ""], "--out is empty. Give a name, or leave it out."),
        (ROWS, ["--metric", "bleu"], "--metric is for --task generation, and this is --task classification"),
        (ROWS, ["--task", "clasification"], "--task 'clasification' is not known. Did you mean 'classification'?"),
        (ROWS, ["--arm", "lora"], "Unknown option: --arm. Did you mean --arms?"),
        (ROWS, ["--steps", "many"], 'unable to convert "many" into int'),
        (ROWS, ["--steps", "2.5"], "Invalid value for --steps: 2.5 is not a whole number."),
        (ROWS, ["--seeds", "1", "1.5"], "Invalid value for --seeds: 1.5 is not a whole number."),
        (ROWS, ["--workers", "inf"], "Invalid value for --workers: inf is not a whole number."),
        (ROWS, ["--steps", "0"], "--steps 0 is too small"),
        (ROWS, ["--workers", "-1"], "--workers -1 is too small; give 1 or more, or on the command line 0, the default"),
        (ROWS, ["--seeds", "-1"], "--seeds -1: give how many"),
        (ROWS, ["--lr", "1e-3", "0.001"], "--lr has 0.001 twice; give each learning rate once"),
        (ROWS, ["--steps", "5", "--arms"], "--arms has nothing behind it; give one or more, or leave it out"),
        (ROWS, ["--arms", "lora:rank=4,rank=8"], "Arm 'lora:rank=4,rank=8' has the field 'rank' twice; give it once"),
        (ROWS, ["--parallel", "fsdp"], "--parallel fsdp has no effect in one process. .* type: --processes 2 --par"),
        (ROWS, ["--parallel", "ddp", "--processes", "1"], "--parallel ddp has no effect in one process"),
        (ROWS, ["--halving", "--arms", "zero-shot", "demos:k=1"], "--halving has no effect where no arm is trained"),
        (ROWS, ["--budget", "1", "--arms", "lora"], "every arm was refused; lora: .* cannot be had for 1 param"),
        (ROWS, ["--arms", "lora:sites=attn.w"], "every arm was refused; lora:sites=attn.w: .*attn.w"),
        (ROWS, ["--template", "No Field"], r"error: Template 'No Field' must name at least one field of the rows"),
        (ROWS, ["--optimizer", "adamv"], "--optimizer 'adamv' is not known. Did you mean 'adamw'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tunescope, material, tmp_path, content, words, message):
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_text(content)
    code, out, err = tunescope("compare", material[0], path, "--out", tmp_path / "run", *words)
    line = err.splitlines()[-1]
    assert (code, out) == (2, "")
    assert line.startswith("error: ")
    assert re.search(message, line)
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("/no/such/folder", "there is no folder /no/such/folder; give the folder of a transformers model"),
        (".", r"the folder /.* is not a transformers model with safetensors weights: .* It holds: "),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named(tunescope, material, tmp_path, model, message):
    code, _, err = tunescope("compare", model, material[1]["train"], "--out", tmp_path / "run")
    assert code == 2
    assert re.search(message, err.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", b"torn", r"not a transformers model with safetensors weights: .*header"),
        ("tokenizer.json", None, r"broken has no tokenizer: save one there with tokenizer.save_pretrained\("),
    ],
)
def test_a_damaged_model_folder_is_named(tunescope, material, tmp_path, name, content, message):
    folder = tmp_path / "broken"
    shutil.copytree(material[0], folder)
    if content is None:
        (folder / name).unlink()
        (folder / "tokenizer_config.json").unlink()
    else:
        (folder / name).write_bytes(content)
    code, _, err = tunescope("compare", folder, material[1]["train"], "--out", tmp_path / "run")
    assert code == 2
    assert re.search(message, err.splitlines()[-1])


def test_a_file_where_the_run_would_go_is_named_and_kept(tunescope, material, tmp_path):
    (tmp_path / "run").write_text("mine")
    for out in (tmp_path / "run", tmp_path / "run" / "inner"):
        code, _, err = tunescope("compare", material[0], material[1]["train"], "--out", out)
        assert code == 2
        assert (
            err == f"error: {tmp_path / 'run'} cannot be a folder: a file has that name. Name another: --out FOLDER\n"
        )
        assert tunescope("demo", "--out", out) == (2, "", err)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_link_to_a_folder_that_is_not_there_is_no_file_of_that_name(tunescope, material, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    code, _, err = tunescope("compare", material[0], material[1]["train"], "--out", tmp_path / "link")
    assert code == 2 and "cannot be a folder: a link has that name, which leads to no folder. Name another" in err


def test_compare_says_that_test_rows_are_also_in_train(tunescope, material, tmp_path):
    data = material[1]
    words = [data["train"], "--dev", data["dev"], "--test", data["train"], *QUICK, "--out", tmp_path / "run"]
    words[words.index("lora:rank=2")] = "demos:k=2"
    code, _, err = tunescope("compare", material[0], *words)
    assert code == 0
    assert "note: 64 of 64 test rows are also in train, exactly (lines 1, 2, 3, 4, 5, ...)." in err


def test_a_hub_name_that_is_not_reached_is_named(tunescope, material, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code, _, err = tunescope("compare", "nobody/nothing-at-all", material[1]["train"], "--out", tmp_path / "run")
    assert code == 2
    assert "error: model 'nobody/nothing-at-all' cannot be loaded: " in err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["compare", "--model", "m", "--data", "rows.jsonl"], "MODEL"),
        (["compare", "m", "--data", "rows.jsonl"], "DATA"),
        (["check", "--data=rows.jsonl", "--model", "m"], "DATA"),
    ],
)
def test_an_argument_typed_as_an_option_is_said_to_stand_by_itself(tunescope, words, name):
    code, _, err = tunescope(*words)
    assert (
        code == 2 and f"{name} stands by itself, without an option in front. Type: tunescope {words[0]} --help" in err
    )


def test_a_verb_that_is_not_known_gets_the_nearest(tunescope):
    code, _, err = tunescope("compar")
    assert code == 2
    assert 'Unknown command "compar". Did you mean "compare"?' in err


def test_a_folder_in_use_is_refused_by_the_command_line(tunescope, material, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "LOCK").write_text(json.dumps({"pid": 7, "host": "elsewhere", "started": "then"}))
    code, _, err = tunescope("compare", material[0], material[1]["train"], "--out", tmp_path / "run")
    assert code == 2
    assert "is in use by process 7 on host elsewhere, started then; wait, or " in err


def test_ctrl_c_says_how_to_go_on_and_it_does(tunescope, material, tmp_path):
    model, data = material
    words = [model, data["train"], "--dev", data["dev"], "--test", data["test"], *QUICK, "--out", tmp_path / "run"]
    words[words.index("--steps") + 1] = "100000"
    words += ["--patience", "99999", "--eval-every", "1000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tunescope.cli.app", "compare", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell's children ignore it
    )
    while not list(tmp_path.glob("run/arms/*.tmp-*")):
        assert process.poll() is None
        time.sleep(0.001)  # a run begins with collecting garbage, in which the interrupt shall land
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == f"stopped; resume with: tunescope resume {tmp_path}/run"
    assert not (tmp_path / "run" / "LOCK").exists()


def test_a_closed_pipe_is_quiet():
    read, written = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tunescope.cli.app", "arms"]
    ended = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, text=True, check=False)
    os.close(written)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_options_come_to_the_plan_they_name(material):
    asked = question("m", "d.jsonl")
    assert asked.settings == Settings(steps=500, batch_size=16, eval_every=50)
    assert (asked.seeds, asked.task) == ((0, 1, 2), {"kind": "classification"})
    one = question("m", "d.jsonl", None, TaskOptions(task="generation", metric=("bleu", "nist"), input_field="mr"))
    assert one.task == {"kind": "generation", "input": "mr", "metric": "bleu", "also": ("nist",)}


def test_a_run_without_a_best_artifact_says_why_in_its_place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tunescope.report.terminal.everything", lambda results: "the table")
    results = {"best": {"arm": "bare", "path": None}, "arms": [{"name": "bare", "group": "none"}]}
    print_run(tmp_path, results)
    assert "no artifact: the model as it is, bare, does best on dev" in capsys.readouterr().out
    (tmp_path / "best").mkdir()
    print_run(tmp_path, results)
    assert "no artifact" not in capsys.readouterr().out


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_change_no_exit_code(closed, tmp_path):
    shell = ["bash", "-c", f'"$0" -m tunescope.cli.app arms {closed}; echo $? > code', sys.executable]
    subprocess.run(shell, check=True, cwd=tmp_path)
    assert (tmp_path / "code").read_text() == "0\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="of Linux")
def test_an_error_that_cannot_be_told_has_its_exit_code():
    for words, code in ((["check", "nowhere", "nothing.jsonl"], 2), (["arms"], 0)):
        command = [sys.executable, "-m", "tunescope.cli.app", *words]
        with open("/dev/full", "w") as full:
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
        assert ended.returncode == code
