"""What the page tells to run next, and how an arm is used: commands that the command line reads, Python that runs."""

from __future__ import annotations

import ast
import shlex

import pytest
from made_results import LORA, PREFIX, SHOTS, ZERO, arm, results
from payloads import HOSTILE, poisoned
from report_example import example
from test_page import Tags

from tunescope import report
from tunescope.report.next_steps import BY_REASON, MOST, steps
from tunescope.report.use import use
from tunescope.report.verdict.verdict import decide
from tunescope.report.view import view

COMMAND = (
    "tunescope compare gpt2 a.jsonl --test b.jsonl --arms zero-shot prefix lora --budget 98304 --seeds 3 --steps 400"
)
FULL = arm("full", "full", 0.93)


def told(*arms, reason=None, run=None, command=COMMAND, **more):
    found = results(*arms, **more) | {"command": command, "model": {"name": "gpt2", "kind": "decoder"}}
    found["verdict"] = decide(found)
    if reason:
        found["verdict"] |= {"reason": reason, "run": run}
    return steps(found)


def typed(command):
    """What the command line makes of it; an option that it does not know raises."""
    from tunescope.cli.app import app

    function, bound, *_ = app.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)
    return function.__name__, bound


@pytest.mark.parametrize("reason", BY_REASON)
def test_every_command_is_one_that_the_command_line_reads(reason):
    run = "`tunescope resume RUN --max-seeds 9`" if reason == "wide interval" else None
    found = told(ZERO, PREFIX, LORA, reason=reason, run=run)
    assert 1 <= len(found) <= MOST
    for one in found:
        assert typed(one["command"])[0] in ("compare", "resume", "probe")
        assert one["why"].endswith(".")


def test_three_seeds_are_not_asked_for_with_fewer_at_most():
    command = told(ZERO, PREFIX, LORA, reason="few seeds", command=f"{COMMAND} --max-seeds 2".replace("s 3", "s 1"))
    assert "--seeds 3 " in command[0]["command"]
    assert command[0]["command"].endswith("--max-seeds 3")
    one_word = f"{COMMAND} --max-seeds=2".replace("s 3", "s 1")
    assert told(ZERO, PREFIX, LORA, reason="few seeds", command=one_word)[0]["command"].endswith("--max-seeds 3")
    bare = told(ZERO, PREFIX, LORA, reason="few seeds", command=COMMAND.replace("s 3", "s 1"))[0]["command"]
    assert "--max-seeds" not in bare


def test_the_context_is_looked_into_though_the_best_arm_is_a_delta():
    probed = {}
    for best in ("prefix", "lora"):
        found = results(ZERO, PREFIX, LORA) | {"command": COMMAND, "best": {"arm": best, "path": "best"}}
        found["verdict"] = decide(found)
        found["verdict"]["evidence"]["context"]["chosen"] = {"seed": 1, "id": "a1"}
        probed[best] = next(one for one in steps(found) if "probe" in one["command"])
    assert "--artifact RUN/best " in probed["prefix"]["command"]
    assert "--artifact RUN/arms/a1/artifact " in probed["lora"]["command"]
    assert probed["lora"]["why"] == "What prefix does inside attention."


def test_arms_whose_names_begin_with_a_dash_are_not_asked_twice():
    command = COMMAND.replace("--arms zero-shot prefix lora", "--arms=-a=prefix --arms=lora")
    added = told(PREFIX, LORA, reason="alike", command=command)[-1]["command"]
    assert typed(added)[0] == "compare"
    asked = [word.partition("=")[2] for word in added.split() if word.startswith("--arms=")]
    assert asked == ["-a=prefix", "lora", "zero-shot", "demos:k=4", "full"]


def test_every_reason_of_the_rule_has_its_steps():
    import inspect

    from tunescope.report.verdict import verdict

    tree = ast.parse(inspect.getsource(verdict))
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Answer"]
    reasons = {node.args[1].value for node in made}
    assert reasons == BY_REASON.keys()


def test_more_steps_are_twice_those_there_were_and_options_are_replaced_where_they_stand():
    (first, *_) = told(arm("zero-shot", "none", 0.5), arm("prefix", "context", 0.5), arm("lora", "delta", 0.5))
    words = shlex.split(first["command"])
    assert words[:12] == shlex.split(COMMAND)[:12]
    assert words[words.index("--steps") + 1] == "800" and words.count("--steps") == 1
    assert words[words.index("--beyond") + 1] == "2"


def test_one_learning_rate_has_no_end_to_go_past():
    low = [arm("zero-shot", "none", 0.5), arm("prefix", "context", 0.5), arm("lora", "delta", 0.5)]
    command = f"{COMMAND} --lr 0.1"
    found = results(*low) | {"command": command, "model": {"name": "gpt2", "kind": "decoder"}}
    found["protocol"]["trials_per_arm"] = 1
    assert steps(found | {"verdict": decide(found)})[0]["command"] == command.replace("400", "800")


def test_with_k_shot_more_seeds_are_asked_for_by_the_comparison_again():
    run = "9 more seeds (about 4 min) would decide: `tunescope compare ... --seeds 12`."
    command = f"{COMMAND} --k-shot 16"
    found = told(ZERO, PREFIX, LORA, reason="wide interval", run=run, command=command)
    assert found[0]["command"] == command.replace("--seeds 3", "--seeds 12")


def test_a_new_run_of_more_seeds_has_as_many_at_most():
    run = "29 seeds in a new run that looks once would decide: `tunescope compare ... --seeds 29`."
    command = f"{COMMAND} --max-seeds 12"
    (first, *_) = told(ZERO, PREFIX, LORA, reason="wide interval", run=run, command=command)
    assert first["command"] == command.replace("--seeds 3", "--seeds 29").replace("--max-seeds 12", "--max-seeds 29")


def test_a_verdict_that_computed_its_seeds_has_its_own_command_first():
    run = "9 more seeds (about 4 min) would decide: `tunescope resume RUN --max-seeds 12`."
    assert (
        told(ZERO, PREFIX, LORA, reason="wide interval", run=run)[0]["command"] == "tunescope resume RUN --max-seeds 12"
    )
    rows = told(ZERO, PREFIX, LORA, reason="wide interval", run="More seeds alone do not decide it (`--test`).")
    assert "--test MORE_ROWS.jsonl" in rows[0]["command"] and "b.jsonl" not in rows[0]["command"]
    run = (
        "Neither alone decides it: 40 seeds and about 2,000 test rows (now 3 and 400) would (`--test`, `--max-seeds`)."
    )
    both = told(ZERO, PREFIX, LORA, reason="wide interval", run=run)
    assert "--test MORE_ROWS.jsonl" in both[0]["command"] and "--max-seeds 40" in both[0]["command"]
    run = "The difference seen is too little for 200 seeds on 200 times the test rows to tell the side."
    assert not [one for one in told(ZERO, PREFIX, LORA, reason="wide interval", run=run) if "ROWS" in one["command"]]


def test_a_prompt_that_does_it_has_no_smaller_budget():
    assert not [one for one in told(arm("zero-shot", "none", 0.92), PREFIX, LORA) if "budget" in one["why"]]


def test_one_seed_asks_for_three_and_a_missing_kind_for_an_arm_of_it():
    assert shlex.split(told(ZERO, PREFIX, LORA, seeds=[0])[0]["command"])[-3:] == ["3", "--steps", "400"]
    without = COMMAND.replace(" lora", "")
    told_first = told(ZERO, PREFIX, reason="missing arms", command=without)[0]["command"]
    assert "--arms zero-shot prefix lora --budget" in told_first


@pytest.mark.parametrize("reason", ["missing arms", "wide interval"])
@pytest.mark.parametrize("lost", ["lora", "full", "demos:k=4"])
@pytest.mark.parametrize("typed_out", [True, False])
def test_an_arm_that_did_not_finish_is_not_offered_again(lost, reason, typed_out):
    """With --arms it would stand there twice, which is refused; without, it would fail as it did."""
    command = f"tunescope compare gpt2 a.jsonl --arms zero-shot prefix {lost}" if typed_out else "tunescope compare a b"
    gone = {**arm(lost, "delta", status="out of memory"), "spec": lost}
    for one in told(ZERO, PREFIX, gone, reason=reason, command=command):
        arms = shlex.split(one["command"].partition("--arms ")[2])
        assert arms.count(lost) == (typed_out and bool(arms)) and len(arms) == len(set(arms))


def test_what_is_enough_is_tried_at_a_quarter_of_the_budget_and_what_is_not_at_four_times():
    assert "--budget 24576" in told(ZERO, PREFIX, LORA, FULL)[0]["command"]
    worse = told(ZERO, arm("prefix", "context", 0.6), LORA | {"chosen": {"seed": 1, "id": "b1"}}, FULL)
    assert "--budget 393216" in worse[0]["command"]
    assert "probe pattern" in worse[1]["command"] and "--artifact RUN/arms/b1/artifact " in worse[1]["command"]
    assert worse[1]["why"].startswith("How far lora turned attention")


def test_no_budget_is_offered_that_has_no_room_for_a_context_or_for_a_delta():
    """A rank of 3 stores 98304, one of 1 a third of that: more than a quarter."""
    sized = {**LORA, "spec": "lora:rank=3", "parameters": {"trained": 98304, "stored": 98304, "live": 0}}
    assert not [one for one in told(ZERO, PREFIX, sized, FULL) if "budget" in one["why"]]
    first, *_ = told(ZERO, PREFIX, {**sized, "spec": "lora:rank=4"}, FULL)
    assert first["why"] == "Whether a quarter of the budget, 24,576, does it too."


def test_yardsticks_that_lack_are_offered_once():
    last = told(ZERO, PREFIX, LORA)[-1]
    assert last["why"] == "To compare with: solved examples in front and full tuning."
    assert "--arms zero-shot prefix lora demos:k=4 full" in last["command"]
    assert not [one for one in told(ZERO, SHOTS, PREFIX, LORA, FULL) if one["why"].startswith("To compare")]


def test_a_command_that_is_not_there_or_not_ours_gives_none():
    for command in ("", "python train.py", "tunescope compare 'open", None):
        assert told(ZERO, PREFIX, LORA, command=command) == []


def used(results):
    return use(results, view(results).arms)


def test_the_best_arm_is_used_from_its_copy_and_the_others_from_their_runs():
    found = example() | {"best": {"arm": "full", "path": "best"}}
    shown = used(found)
    assert "ts.load('RUN/best')" in shown["python"] and len(shown["python"].splitlines()) == 3
    assert {one["name"] for one in shown["arms"]} == {
        arm["name"] for arm in found["arms"] if arm["status"] == "done" and arm["parameters"]["stored"]
    }
    places = {one["name"]: one["place"] for one in shown["arms"]}
    assert places["lora-2"] == "RUN/arms/lora-2-0/artifact"
    for one in found["arms"]:
        one |= {"methods": ["lora"] if one["name"] == "lora-2" else [], "served_as": "merged", "chosen": {"id": "ab3"}}
    shown = used(found)
    assert [one["name"] for one in shown["arms"]] == ["lora-2"]
    assert shown["serve"].startswith("tunescope export RUN/arms/ab3/artifact --to merged --model ")
    assert typed(shown["serve"])[0] == "export"


@pytest.mark.parametrize(("kind", "by", "name"), [
    ("decoder", "words", "AutoModelForCausalLM"), ("encoder-decoder", "words", "AutoModelForSeq2SeqLM"),
    ("encoder", "head", "AutoModel"), ("encoder", "words", "AutoModelForMaskedLM"),
])  # fmt: skip
def test_the_model_is_loaded_as_it_was_tuned(kind, by, name):
    found = example()
    found["model"]["kind"], found["task"]["by"] = kind, by
    assert f"import AutoTokenizer, {name}\n" in used(found)["python"]


def test_a_revision_of_the_hub_is_given_as_transformers_takes_it():
    found = example()
    found["model"]["name"] = "our/tiny@v1"
    assert "from_pretrained('our/tiny', revision='v1')" in used(found)["python"]


@pytest.mark.parametrize("poison", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_name_holds_the_lines_stay_python_and_one_command(poison):
    found = poisoned(example(), poison)
    for one in found["arms"]:
        one["served_as"] = "merged"
    found["model"]["name"] = poison
    found["command"] = shlex.join(["tunescope", "compare", poison.replace("\x00", ""), "--arms", poison])
    shown = used(found)
    ast.parse(shown["python"])
    assert len(shlex.split(shown["serve"])) == 9
    clean = {tag for tag, _ in Tags(report.html(example())).tags}
    assert {tag for tag, _ in Tags(report.html(found)).tags} <= clean | {"ol", "li", "pre", "p"}


def test_budgets_that_the_run_had_are_not_offered_nor_any_to_arms_with_sizes_of_their_own():
    for budgets, quarter, four in (([1024, 256], 64, 4096), ([256, 1024], 64, 4096)):
        enough = results(ZERO, PREFIX, LORA, FULL) | {"command": COMMAND, "model": {"name": "gpt2", "kind": "decoder"}}
        enough["protocol"]["budgets"] = budgets
        assert f"--budget {quarter}" in steps(enough | {"verdict": decide(enough)})[0]["command"]
        worse = results(ZERO, arm("prefix", "context", 0.8), LORA, FULL) | {"command": COMMAND}
        worse |= {"model": {"name": "gpt2", "kind": "decoder"}}
        worse["protocol"]["budgets"] = budgets
        assert f"--budget {four}" in steps(worse | {"verdict": decide(worse)})[0]["command"]
    for score in (0.9, 0.8):
        sized = told(ZERO, arm("prefix:length=4", "context", score), LORA, FULL)
        assert sized
        assert not [one for one in sized if "budget" in one["why"]]
