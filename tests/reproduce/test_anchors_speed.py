"""What compressed demonstrations save: each way to give them timed on the same queries, in turns."""

from dataclasses import replace

import pytest
import tinyrun

import tunescope as ts
from tunescope.probes.anchors.loyalty import NOTHING, Queries
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check, find
from tunescope.reproduce.recipes import anchors_speed
from tunescope.reproduce.run import reproduce


def test_ways_take_turns_of_the_same_queries_behind_what_each_keeps(tmp_path, in_process, monkeypatch):
    asked = []

    def seconds(self, *context, before=NOTHING):
        queries = tuple(tuple(row.input_ids) for row in self.rows)
        asked.append((queries, [next(iter(one.tensors.values())).shape[1] for one in context], len(before.ids)))
        return float(len(asked))

    monkeypatch.setattr(Queries, "seconds", seconds)
    model, data = tinyrun.write(tmp_path)
    ask = Ask("anchors-speed", seeds=1, model=model, data=data["train"], test=data["test"], inputs=15)
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    (draw,) = result["units"][0]["outcome"]["draws"]
    ways, length = (anchors_speed.AGAIN, anchors_speed.ALL, anchors_speed.ANCHORS, anchors_speed.NONE), asked[0][2]
    again, every, few, none = (draw["positions"][way] for way in ways)
    assert (again, every, none) == (length, length, 0) and 0 < few < length
    turn = [([], length), ([every], 0), ([few], 0), ([], 0)]
    assert [(kept, before) for _, kept, before in asked] == turn * 2
    assert [len(rows) for rows, _, _ in asked] == [10] * 4 + [5] * 4
    assert len({rows for rows, _, _ in asked}) == 2
    cells = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    assert cells["anchors kept"][1]["values"] == [1 / 5]  # the median of 3 and 7
    assert cells["anchors kept"][2]["values"] == [(1 / 3 + 5 / 7) / 2]
    assert cells["no demonstrations"][2]["values"] == [(1 / 4 + 5 / 8) / 2]
    assert cells["read again with every query"][2]["text"] == "1"


def test_times_are_taken_of_a_model_and_the_published_stand_beside_them(tmp_path, in_process):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("anchors-speed", "paper", seeds=2, model=model, data=tinyrun.sst2(tmp_path / "sst2"), inputs=5)
    ask = replace(ask, words=("negative=neg,positive=pos",))
    check(ask, find("anchors-speed"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    cells = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    assert cells["anchors kept"][2]["paper"] == "1.1 to 2.9"
    assert all(pace > 0 for row in cells.values() for pace in row[1]["values"])
    draws = result["units"][0]["outcome"]["draws"]
    assert len(draws) == 2 and draws[0]["seconds"] != draws[1]["seconds"]
    with pytest.raises(ts.UserError, match="anchors-speed takes time of a given model: give --model and --data"):
        anchors_speed.settings(Ask("anchors-speed"))


def test_the_published_protocol_has_as_many_queries_as_the_paper(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    asked = Ask("anchors-speed", "paper", model=model, data=tinyrun.sst2(tmp_path / "sst2"))
    rows = [anchors_speed.settings(one)["rows"] for one in (asked, replace(asked, protocol="tuned"))]
    assert rows == [1000, 100]
