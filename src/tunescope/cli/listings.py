"""The verbs that say what there is: data, arms, doctor."""

from tunescope.system.say import say


def data(corpus: str = "", /, *, out: str | None = None) -> None:
    """List the public corpora that a data path may name, as e2e:FOLDER; or say what is in one, and convert it.

    Args:
        corpus: such as e2e:FOLDER, e2e:FOLDER#test or e2e:FILE; without one they are listed.
        out: where its rows are written as JSONL: a new FILE.jsonl for one part, a folder for several.
    """
    from tunescope.data.describe import lines

    for line in lines(corpus, out):
        say(line)


def arms() -> None:
    """List the methods: fields, defaults, the field that a budget sets, an example."""
    from tunescope.cli.arms import lines

    for line in lines():
        say(line)


def doctor(*, model: str | None = None) -> None:
    """Say what this machine has.

    Args:
        model: also say whether this model's attention is reached.
    """
    from tunescope.cli.doctor import lines

    for line in lines(model):
        say(line)
