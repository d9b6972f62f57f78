"""The verbs that bring an artifact elsewhere and back: export, import, push, pull."""

from typing import Annotated

from cyclopts import Parameter

from tunescope.system.say import say


def export(artifact: str, /, *, to: str, model: str, out: str) -> None:
    """Write a saved artifact as another library's files: read back, compared, and where they can be served.

    Args:
        artifact: the folder of a saved artifact, such as RUN/best.
        to: a format.
        model: the model it was tuned on: a folder, or a name on the Hugging Face hub.
        out: the new folder.
    """
    from tunescope.exchange.export_import import exported

    for line in exported(artifact, to, model, out):
        say(line)


def import_(folder: str, /, *, form: Annotated[str, Parameter(name="--from")], model: str, out: str) -> None:
    """Read an artifact that another library wrote, and save it as tunescope's own.

    Args:
        folder: where its files are.
        form: a format.
        model: the model it was tuned on: a folder, or a name on the Hugging Face hub.
        out: the new folder.
    """
    from tunescope.exchange.export_import import imported

    for line in imported(folder, form, model, out):
        say(line)


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
        say(f"note: {note}")
    say(f"pushed: {done.url} (commit {done.commit[:12]})")


def pull(repo: str, /, *, out: str, revision: str | None = None) -> None:
    """Fetch an artifact from the Hugging Face hub into a new folder, checked; nothing in it is run.

    Args:
        repo: OWNER/NAME.
        out: the new folder.
        revision: a branch, tag or commit (default: the newest).
    """
    from tunescope.exchange import hub

    done = hub.pull(repo, out, revision=revision)
    say(f"pulled: {done.path} (commit {done.commit[:12]}): {done.arm}")
