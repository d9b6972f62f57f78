"""The command line: each verb one thin function. torch and transformers are imported when a verb needs them."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from cyclopts import App, CycloptsError

from tunescope import __version__
from tunescope.cli import artifacts, comparisons, listings, studies
from tunescope.errors import UserError
from tunescope.exchange.format import format_lines
from tunescope.probes import names
from tunescope.system import plugins
from tunescope.system.forkserver import calm

app = App(
    name="tunescope",
    version=__version__,
    suppress_keyboard_interrupt=False,
    help_format="plaintext",  # the list of verbs has no marks, and what reads them takes a fifth of its time
    help="Tune a language model, and see what tuning did. Begin with: tunescope demo",
)


<<<<<<< HEAD
@app.command
def demo(*, from_scratch: bool = False, out: str = "runs/demo") -> None:
    """Compare everything on a small model made for it: no download, about three minutes.

    Args:
        from_scratch: train the small model anew instead of taking the one in the package.
        out: the folder for what is written.
    """
    from tunescope.lab.demo import run

    run(Path(out), from_scratch=from_scratch)


@app.command
def compare(
    model: str,
    data: str,
    /,
    *,
    options: PlanOptions | None = None,
    task: TaskOptions | None = None,
    pilot: bool = False,
    out: str | None = None,
    workers: int = 0,
) -> None:
    """Compare ways of adapting MODEL to DATA at one budget: a table, a verdict, a page, the best artifact.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: training rows: JSONL, CSV or TSV, plain or gzipped; or a public corpus, as e2e:FOLDER.
        pilot: only a tenth of the steps in all: what the rest would find, what it would cost, whether to run it.
        out: the folder of the run (default: one in runs/). A run begun there is gone on with.
        workers: processes, each with one thread (0: as cores and memory allow).
    """
    begin(model, workers, PRELOAD)
    from tunescope.comparison import comparison
    from tunescope.comparison.pilot import piloted
    from tunescope.trial import identity

    asked = question(model, data, options, task)
    asked = piloted(asked) if pilot else asked
    folder = Path(out) if out else identity.default_folder(asked)
    found = comparison.ask(asked, folder, workers=workers or _workers(model))
    _show(found.folder, found.results)


@app.command
def check(
    data: str,
    /,
    *,
    model: str,
    options: PlanOptions | None = None,
    task: TaskOptions | None = None,
) -> None:
    """Say what is in DATA and what a comparison would take, before anything is trained.

    Args:
        data: training rows: JSONL, CSV or TSV, plain or gzipped; or a public corpus, as e2e:FOLDER.
        model: a folder with a transformers model, or a name on the Hugging Face hub.
    """
    from tunescope.comparison.preview import lines
    from tunescope.system import machine
    from tunescope.trial.open import open_bench

    asked = question(model, data, options, task)
    with machine.threads(asked.threads):
        for line in lines(open_bench(asked)):
            print(line, flush=True)


@app.command
def resume(run: str, /, *, max_seeds: int | None = None, minutes: float | None = None, workers: int = 0) -> None:
    """Go on with the comparison in the folder RUN.

    Args:
        max_seeds: while there is no verdict, add seeds to the two arms that decide, up to so many.
        minutes: add no seeds that would not be done so long after now.
        workers: processes, each with one thread (0: as cores and memory allow).
    """
    from tunescope.system import run_folder

    config = run_folder.read_config(Path(run))
    begin(str(config.get("model")), workers, PRELOAD)
    from tunescope.comparison import comparison

    at_once = workers or _workers(str(config.get("model")))
    found = comparison.resume(run, max_seeds=max_seeds, minutes=minutes, workers=at_once)
    _show(found.folder, found.results)


@app.command
def report(run: str, /) -> None:
    """Show the table of a finished RUN and write its page again."""
    from tunescope import report as page
    from tunescope.system import run_folder

    results = run_folder.read_results(Path(run))
    page.write(results, Path(run) / "report.html")
    _show(Path(run), results)


@app.command
def reproduce(
    name: str | None = None,
    /,
    *,
    protocol: Literal["tuned", "paper"] = "tuned",
    quick: bool = False,
    seeds: int | None = None,
    model: Annotated[tuple[str, ...], Many] = (),
    data: str | None = None,
    steps: int | None = None,
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    accumulate: int | None = None,
    out: str | None = None,
    workers: int = 0,
) -> None:
    """Run a paper's table again and print ours beside theirs; without a NAME, list the recipes.

    Args:
        name: a recipe.
        protocol: tuned (learning rates tried, early stop) or paper (published steps and rates).
        quick: a small size, minutes.
        seeds: how many.
        model: for recipes on a given model: a folder, or a name on the Hugging Face hub; some take several.
        data: for recipes on given data: a file, or a corpus as CORPUS:FOLDER (`tunescope data` lists them).
        steps: for recipes on a given model: updates of every line, instead of the protocol's.
        precision: for recipes on a given model: auto (bfloat16 on a GPU that has it), float32 or bfloat16.
        accumulate: for recipes on a given model: parts that each batch goes through in, to save memory.
        out: the folder of the run (default: one in runs/reproduce/). A run begun there is gone on with.
        workers: processes, each with one thread (0: one a core, or as many as a model given leaves memory for).
    """
    from tunescope.reproduce import run as running
    from tunescope.reproduce.recipe import Ask, listing

    if name is None:
        print(listing())
        return
    ask = Ask(name, protocol, quick, seeds, next(iter(model), None), data, model[1:], steps, precision, accumulate)
    folder = Path(out) if out else running.default_folder(ask)
    running.reproduce(ask, folder, workers, lambda line: print(line, flush=True))
    print(f"\nresult: {folder / 'result.json'}\npage: {folder / 'report.html'}")


@app.command(help_epilogue="Probes:\n\n" + "\n\n".join(names.lines()))
def probe(
    name: str = "",
    /,
    *,
    model: str = "",
    artifact: str = "",
    text: tuple[str, ...] = (),
    data: str | None = None,
    rows: int | None = None,
    out: str | None = None,
) -> None:
    """Look into attention: what a saved artifact does there, as a table, a page with pictures, and JSON.

    Args:
        name: a probe; without one they are listed.
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        artifact: the folder of a saved artifact, such as RUN/best.
        text: a text for the model to read; give it again for more.
        data: texts from a file of rows instead: JSONL, CSV or TSV, plain or gzipped.
        rows: how many rows of it are read (default: 8).
        out: the folder for what is written (default: runs/probe-NAME).
    """
    if not name:
        print("\n".join(names.lines()))
        return
    names.known_probe(name)
    missing = [option for option, given in (("--model", model), ("--artifact", artifact)) if not given]
    if missing:
        raise UserError(f"probe {name} needs {' and '.join(missing)}: tunescope probe {name} --model M --artifact DIR")
    from tunescope.probes import study as probe_run
    from tunescope.report import terminal

    asked = probe_run.ProbeRequest(
        name, model, artifact, text, data, rows, out, shlex.join(["tunescope", *sys.argv[1:]])
    )
    finding, page = probe_run.run(asked)
    print(f"{terminal.finding(finding)}\n\npage: {page}")


@app.command(help_epilogue="Sections:\n\n" + "\n\n".join(lines_of(names.DEMONSTRATIONS)))
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
) -> None:
    """Look into demonstrations: where information flows, what can be cut or kept, which classes are confused.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: rows with a label: JSONL, CSV or TSV, plain or gzipped.
        k: demonstrations of each class.
        rows: test rows that are asked, behind the demonstrations (0: all).
        seeds: draws of demonstrations, how many or which.
        only: sections, such as flow isolate (default: all).
        test: test rows (default: a tenth of the rows).
        out: the folder for what is written (default: one in runs/).
    """
    from tunescope.probes.anchors import study
    from tunescope.report import findings_page as page
    from tunescope.trial.identity import default_folder

    plan = question(model, data, PlanOptions(test=test, seeds=seeds), task)
    asked = study.AnchorRequest(plan, k, rows, only)
    found = study.study(asked, lambda line: print(line, flush=True))
    place = Path(out) if out else default_folder(plan, "anchors", (k, rows, only))
    command = shlex.join(["tunescope", *sys.argv[1:]])
    heading = f"Demonstrations on {found.facts['model']}"
    written = page.write_all(found.findings, place, "anchors", found.facts, (), command, heading)
    _print(found.findings, written)


@app.command(help_epilogue="Searches:\n\n" + "\n\n".join(lines_of("search.methods")))
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
) -> None:
    """Look for a prompt that a person can read: words in front of every row, kept as text.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: training rows: JSONL, CSV or TSV, plain or gzipped; or a public corpus, as e2e:FOLDER.
        method: searches, such as pez:length=10 gcg.
        passes: rows that each search may send forward at each seed; a backward pass counts as two more.
        seeds: how many, or which.
        transfer_to: models that the prompts are carried to, by their text.
        dev: development rows (default: a tenth of the rows).
        test: test rows (default: a tenth of the rows).
        out: a new folder for what is written (default: one in runs/).
    """
    from tunescope.report import findings_page as page
    from tunescope.report.text import clean
    from tunescope.search import findings, study
    from tunescope.trial.identity import default_folder

    plan = question(model, data, PlanOptions(dev=dev, test=test, seeds=seeds), task)
    asked = study.SearchRequest(plan, method, passes, transfer_to)
    place = Path(out) if out else default_folder(plan, "search", (method, passes, transfer_to))
    command = shlex.join(["tunescope", *sys.argv[1:]])
    results = study.study(asked, place, lambda line: print(clean(line), flush=True), command)
    found, facts = findings.findings(results), findings.facts(results)
    heading = f"Prompts for {facts['model']}"
    written = page.page(list(found.values()), facts, (), command, heading)
    (place / "report.html").write_text(written, encoding="utf-8")
    _print(found, place / "report.html")
    if (place / "prompts").exists():
        print(f"prompts: {place / 'prompts'}")


@app.command
def data(corpus: str = "", /, *, out: str | None = None) -> None:
    """List the public corpora that a data path may name, as e2e:FOLDER; or say what is in one, and convert it.

    Args:
        corpus: such as e2e:FOLDER, e2e:FOLDER#test or e2e:FILE; without one they are listed.
        out: where its rows are written as JSONL: a new FILE.jsonl for one part, a folder for several.
    """
    from tunescope.data.describe import lines

    for line in lines(corpus, out):
        print(line, flush=True)


@app.command(help_epilogue="Formats:\n\n" + "\n\n".join(format_lines("write")))
def export(artifact: str, /, *, to: str, model: str, out: str) -> None:
    """Write a saved artifact as another library's files: read back, compared, and where they can be served.

    Args:
        artifact: the folder of a saved artifact, such as RUN/best.
        to: a format.
        model: the model it was tuned on: a folder, or a name on the Hugging Face hub.
        out: the new folder.
    """
    from tunescope.exchange.verbs import exported

    for line in exported(artifact, to, model, out):
        _say(line)


@app.command(name="import", help_epilogue="Formats:\n\n" + "\n\n".join(format_lines("read")))
def import_(folder: str, /, *, form: Annotated[str, Parameter(name="--from")], model: str, out: str) -> None:
    """Read an artifact that another library wrote, and save it as tunescope's own.

    Args:
        folder: where its files are.
        form: a format.
        model: the model it was tuned on: a folder, or a name on the Hugging Face hub.
        out: the new folder.
    """
    from tunescope.exchange.verbs import imported

    for line in imported(folder, form, model, out):
        _say(line)


@app.command
def arms() -> None:
    """List the methods: fields, defaults, the field that a budget sets, an example."""
    from tunescope.cli.arms import lines

    for line in lines():
        print(line)


@app.command
def doctor(*, model: str | None = None) -> None:
    """Say what this machine has.

    Args:
        model: also say whether this model's attention is reached.
    """
    from tunescope.cli.doctor import lines

    for line in lines(model):
        print(line, flush=True)


@app.command
def push(
    artifact: str, repo: str, /, *, public: bool = False, licence: str | None = None, base: str | None = None
) -> None:
    """Put a saved artifact on the Hugging Face hub, private unless you say otherwise, with a model card.

    Args:
        artifact: the folder of a saved artifact, such as RUN/best, whose results then stand in the card.
        repo: OWNER/NAME, made if it is not there.
        public: let everybody see it.
        licence: what the card says, such as apache-2.0.
        base: the base model's name on the hub, for the card.
    """
    from tunescope.exchange import hub

    done = hub.push(artifact, repo, private=not public, licence=licence, base=base)
    for note in done.notes:
        _say(f"note: {note}")
    _say(f"pushed: {done.url} (commit {done.commit[:12]})")


@app.command
def pull(repo: str, /, *, out: str, revision: str | None = None) -> None:
    """Fetch an artifact from the Hugging Face hub into a new folder, checked; nothing in it is run.

    Args:
        repo: OWNER/NAME.
        out: the new folder.
        revision: a branch, tag or commit (default: the newest).
    """
    from tunescope.exchange import hub

    done = hub.pull(repo, out, revision=revision)
    _say(f"pulled: {done.path} (commit {done.commit[:12]}): {done.arm}")
=======
def _listing(verb: Callable[..., Any], heading: str, lines: Sequence[str], name: str | None = None) -> None:
    """The verb, with what it may be given listed at the end of its --help."""
    app.command(verb, name, help_epilogue="\n\n".join([f"{heading}:", *lines]))
>>>>>>> w-small


for plain in (
    *(comparisons.demo, comparisons.compare, comparisons.check, comparisons.resume, comparisons.report),
    studies.reproduce,
    *(artifacts.push, artifacts.pull),
    *(listings.data, listings.arms, listings.doctor),
):
    app.command(plain)
_listing(studies.probe, "Probes", names.lines())
_listing(studies.anchors, "Sections", plugins.lines(names.DEMONSTRATIONS))
_listing(studies.search, "Searches", plugins.lines("search.methods"))
_listing(artifacts.export, "Formats", format_lines("write"))
_listing(artifacts.import_, "Formats", format_lines("read"), "import")
for verb in app:
    app[verb].help_format = "markdown"


def main() -> None:
    """Run the command line; the exit code is 0, 2 for what the user can mend, 130 for Ctrl-C, 143 for a kill."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # what matters of it we say ourselves, with a count
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    calm()
    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (UserError, CycloptsError) as problem:
        _fail(problem)
    except KeyboardInterrupt as problem:
        print(f"\n{str(problem) or 'stopped'}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _fail(problem: Exception) -> NoReturn:
    from tunescope.report.text import visible

    line = visible(" ".join(part.strip() for part in str(problem).splitlines()))
    if isinstance(problem, CycloptsError):
        line += " Type: tunescope --help"
    print(f"error: {line}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
