"""A metric is one file: its name is the one on the command line, and everything finds it there."""

import pytest

from tunescope.cli.options import TaskOptions, question
from tunescope.data import metrics
from tunescope.data.metric import find_metric, metric_names
from tunescope.data.scores import aggregate, of_rows, scale, statistics
from tunescope.errors import UserError
from tunescope.tasks.kinds.generation import Generation

LENGTH = '''
"""How long an output is beside its first reference."""

from tunescope.data.metric import Metric, mean, per_row


def share(output, references, lowercase):
    return (min(1.0, len(output) / len(references[0])),)


METRIC = Metric(compared="characters, {case}, 0 to 1", best=1.0, width=1, stats=per_row(share), score=mean)
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    (tmp_path / "length_share.py").write_text(LENGTH)
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    yield
    find_metric.cache_clear()


def test_a_file_in_the_folder_is_a_metric_everywhere(added):
    assert "length_share" in metric_names()
    task = Generation(metric="length_share", also=("bleu",))
    assert task.describe()["compared"] == "characters, case kept, 0 to 1"
    stats = statistics("length_share", ["ab", "abcd"], [["abcd"], ["ab"]])
    assert aggregate("length_share", stats) == {"length_share": 0.75}
    assert of_rows("length_share", stats) == [0.5, 1.0]
    assert scale("length_share") == 1.0
    asked = question("m", "d.jsonl", None, TaskOptions(task="generation", metric=("length_share",)))
    assert asked.task["metric"] == "length_share"


def test_without_its_file_it_is_refused_by_name():
    with pytest.raises(
        UserError,
        match=r"^There is no metric 'length_share'\. Metrics: bleu, bleu_romanian, bleu_webnlg, chrf, ",
    ):
        Generation(metric="length_share")
    with pytest.raises(UserError, match=r"Did you mean 'rouge_l'\?"):
        find_metric("rougeL".lower())
