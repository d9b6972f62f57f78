"""What a comparison opens: parts cut from one file."""

import json
from functools import partial

import tinyrun

from tunescope.comparing.bench import open_bench
from tunescope.comparing.plan import Plan


def test_references_of_one_input_are_never_on_both_sides_of_a_cut_where_answers_are_written(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    path = tmp_path / "rows.jsonl"
    rows = [{"input": f"film {'plot ' * (n // 4)}", "target": tinyrun.WORDS[n % 4]} for n in range(80)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    opened = partial(open_bench, Plan(model=model, data={"train": str(path)}, task={"kind": "generation"}))
    inputs = [{row["input"] for row in part} for part in opened().splits.parts().values()]
    assert not inputs[0] & inputs[1] and not inputs[0] & inputs[2] and not inputs[1] & inputs[2]
    assert sum(map(len, inputs)) == 20
