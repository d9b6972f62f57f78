"""The verbs that look into something and show tables of it: reproduce, probe, anchors, search."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from tunescope.cli import side_by_side
from tunescope.cli.options import Many, PlanOptions, RecipeOptions, TaskOptions, question, recipe_ask
from tunescope.cli.output import command_line, print_findings
from tunescope.errors import UserError
from tunescope.probes import names
from tunescope.system.executor import HERE
from tunescope.system.say import say


def reproduce(
    name: str | None = None,
    /,
    *,
    options: RecipeOptions | None = None,
    out: str | None = None,
    workers: int = 0,
    executor: str = HERE,
    so_far: bool = False,
    earlier: str | None = None,
    check: bool = False,
    gpu: str | None = None,
) -> None:
    """Run a paper's table again and print ours beside theirs; without a NAME, list the recipes.

    Args:
        name: a recipe.
        out: the folder of the run (default: one in runs/reproduce/). A run begun there is gone on with.
        workers: processes, each with one thread (0: one a core, or as many as a model given leaves memory for).
        executor: where these are: local, or other machines by ray:address=auto or slurm:partition=NAME.
        so_far: the table of what is done in the folder, which may be at work; a recipe that cannot says so.
        earlier: a result.json of this recipe, from another folder or machine, whose pieces are not done again.
        check: run nothing, and say what each line would take in memory and time; for recipes on a model and a corpus.
        gpu: for --check (default: H100): T4, V100, L4, A10, L40S, RTX4090, A100-40GB, A100-80GB, H100 or H200.
    """
    from tunescope.cli import recipe_estimate
    from tunescope.reproduce import run as running
    from tunescope.reproduce.ask import given
    from tunescope.reproduce.recipe import find, listing

    ask = recipe_ask(name or "", options, check=check)
    used = {"--workers": workers, "--executor": executor != HERE, "--earlier": earlier}
    unread = used | {"--out": out, "--so-far": so_far}
    if name is None:
        more = unread | {"--check": check, "--gpu": gpu}
        if typed := [one.names[0] for one in given(ask)] + [option for option, value in more.items() if value]:
            raise UserError(f"{typed[0]} is asked of a recipe, and none is named. Type: tunescope reproduce")
        say(listing())
        return
    if check:
        _refuse_idle("--check, which runs nothing,", unread)
        say("\n".join(recipe_estimate.lines(ask, find(name), gpu or "H100")))
        return
    _refuse_idle("reproduce without --check", {"--gpu": gpu})
    _refuse_idle("--so-far, which runs nothing,", used if so_far else {})
    folder = Path(out) if out else running.default_folder(ask)
    with side_by_side.submitted_told():
        if so_far:
            running.so_far(ask, folder)
        else:
            running.reproduce(ask, folder, workers, say, executor, Path(earlier) if earlier else None)
        say(f"\nresult: {folder / 'result.json'}\npage: {folder / 'report.html'}")


def _refuse_idle(what: str, typed: Mapping[str, object]) -> None:
    """Raises UserError for an option that is given and would change nothing."""
    idle = [name for name, given in typed.items() if given]
    if idle:
        raise UserError(f"{what} has no use for {' and '.join(idle)}.")


def probe(
    name: str = "",
    /,
    *,
    model: str = "",
    artifact: str = "",
    text: tuple[str, ...] = (),
    data: str | None = None,
    rows: int | None = None,
    text_field: str = "",
    out: str | None = None,
) -> None:
    """Look into attention: what a saved artifact does there, as a table, a page with pictures, and JSON.

    Args:
        name: a probe; without one they are listed.
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        artifact: the folder of a saved artifact, such as RUN/best.
        text: a text for the model to read; give it again for more.
        data: texts from a file of rows instead: JSONL, CSV or TSV, plain or gzipped, or Parquet.
        rows: how many rows of it are read (default: 8).
        text_field: the field of --data with the text (default: as the artifact's template has it; else text or input).
        out: the folder for what is written (default: runs/probe-NAME).
    """
    if not name:
        say("\n".join(names.lines()))
        return
    names.known_probe(name)
    missing = [option for option, given in (("--model", model), ("--artifact", artifact)) if not given]
    if missing:
        raise UserError(f"probe {name} needs {' and '.join(missing)}: tunescope probe {name} --model M --artifact DIR")
    from tunescope.probes import study as probe_run
    from tunescope.report import terminal

    asked = probe_run.ProbeRequest(name, model, artifact, text, data, rows, text_field, out, command_line())
    finding, page = probe_run.run(asked)
    say(f"{terminal.finding(finding)}\n\npage: {page}")


def anchors(
    model: str,
    data: str,
    /,
    *,
    k: int = 1,
    rows: int = 100,
    seeds: Annotated[tuple[int, ...], Many] = (5,),
    only: Annotated[tuple[str, ...], Many] = (),
    test: str | None = None,
    task: TaskOptions | None = None,
    out: str | None = None,
    workers: int = 0,
    executor: str = HERE,
) -> None:
    """Look into demonstrations: where information flows, what can be cut or kept, which classes are confused.

    Each section of each draw is kept as it ends: the same command goes on where it was stopped.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: rows with a label: JSONL, CSV or TSV, plain or gzipped, or Parquet.
        k: demonstrations of each class.
        rows: test rows that are asked, behind the demonstrations (0: all).
        seeds: draws of demonstrations, how many or which.
        only: sections, such as flow isolate (default: all).
        test: test rows (default: a tenth of the rows).
        out: the folder for what is written (default: one in runs/).
        workers: sections of draws at once (0: one a core, as far as memory goes; 1: all in this process).
        executor: where these are: local, or other machines by ray:address=auto or slurm:partition=NAME.
    """
    from tunescope.probes.anchors import far_draws, study
    from tunescope.probes.anchors.request import AnchorRequest
    from tunescope.report import findings_page as page
    from tunescope.system import files
    from tunescope.trial.identity import default_folder

    plan = question(model, data, PlanOptions(test=test, seeds=seeds), task)
    asked = AnchorRequest(plan, k, rows, only)
    folder = Path(out) if out else default_folder(plan, "anchors", (k, rows, only))
    command, place = command_line(), side_by_side.place(plan, workers, executor, far_draws.__name__)
    with side_by_side.submitted_told():
        with files.disk_errors_named(folder, files.SAME_COMMAND):
            page.check_folder(folder, "anchors")
            found = study.study(asked, say, folder, place)
            heading = f"Demonstrations on {found.facts['model']}"
            written = page.write_all(found.findings, folder, "anchors", found.facts, (), command, heading)
        print_findings(found.findings, written)


def search(
    model: str,
    data: str,
    /,
    *,
    method: Annotated[tuple[str, ...], Many] = (),
    passes: int = 20_000,
    seeds: Annotated[tuple[int, ...], Many] = (3,),
    transfer_to: Annotated[tuple[str, ...], Many] = (),
    dev: str | None = None,
    test: str | None = None,
    task: TaskOptions | None = None,
    out: str | None = None,
    workers: int = 0,
    executor: str = HERE,
) -> None:
    """Look for a prompt that a person can read: words in front of every row, kept as text.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: training rows: JSONL, CSV or TSV, plain or gzipped, or Parquet; or a public corpus, as e2e:FOLDER.
        method: searches, such as pez:length=10 gcg.
        passes: rows that each search may send forward at each seed; a backward pass counts as two more.
        seeds: how many, or which.
        transfer_to: models that the prompts are carried to, by their text.
        dev: development rows (default: a tenth of the rows).
        test: test rows (default: a tenth of the rows).
        out: a new folder for what is written (default: one in runs/).
        workers: seeds of searches at once (0: one a core, as far as memory goes; 1: all in this process).
        executor: where these are: local, or other machines by ray:address=auto or slurm:partition=NAME.
    """
    from tunescope.search import far_seeds, study
    from tunescope.trial.identity import default_folder

    plan = question(model, data, PlanOptions(dev=dev, test=test, seeds=seeds), task)
    asked = study.SearchRequest(plan, method, passes, transfer_to)
    folder = Path(out) if out else default_folder(plan, "search", (method, passes, transfer_to))
    command, place = command_line(), side_by_side.place(plan, workers, executor, far_seeds.__name__)
    with side_by_side.submitted_told():
        _show_search(study.study(asked, folder, say, command, place), folder, command)


def _show_search(results: Mapping[str, Any], folder: Path, command: str) -> None:
    from tunescope.report import findings_page as page
    from tunescope.report import terminal
    from tunescope.search import findings
    from tunescope.system import files

    found, facts = findings.findings(results), findings.facts(results)
    heading = f"Prompts for {facts['model']}"
    written = page.page(list(found.values()), facts, (), command, heading)
    with files.disk_errors_named(folder, files.SAME_COMMAND):
        files.put(folder / "report.html", written.encode())
    print_findings(found, folder / "report.html")
    for told in terminal.data_notes(results):
        say(told)
    if (folder / "prompts").exists():
        say(f"prompts: {folder / 'prompts'}")
