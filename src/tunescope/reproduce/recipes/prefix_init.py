"""How a prefix begins: noise, or the model's own keys and values of words, any words or those of the task.

As published, the network that makes the prefix is first fitted to the activations of the words; under the tuned
protocol there is no network, and the prefix begins as those activations.
"""

from tunescope.models.load import load_tokenizer
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "A prefix that begins as noise or as words, on few examples"
SOURCE = "Li and Liang 2021 (arXiv:2101.00190), section 7.4 and figure 5: words beat noise, whatever the words"
TAKES = corpus_table.TAKES
KEEPS = True

WORDS = {"task words": "table-to-text:", "of the task": "describe the restaurant", "any words": "elephant active keep"}
EXAMPLES = 100


def settings(ask: Ask) -> Settings:
    rows = published.rows(ask)
    rows["train"] = min(EXAMPLES, rows.get("train", EXAMPLES))
    made = corpus_table.settings(ask, (), published.course(ask, published.FEW), rows)
    words = load_tokenizer(made["model"])
    length = min(len(words(text, add_special_tokens=False)["input_ids"]) for text in WORDS.values())
    return made | {"lines": corpus_table.kept(ask, _lines(length), made["course"]["network"])}


def _lines(length: int) -> list[Line]:
    """All of one length: that of the shortest of the texts in the model's tokens."""
    begun: dict[str, str] = {"noise": "init_from=noise", "sampled tokens": "init_from=tokens"}
    begun |= {f"{label}: {text!r}": f"init_from=text,text={text}" for label, text in WORDS.items()}
    return [Line(label, f"prefix:length={length},{how}") for label, how in begun.items()]


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
