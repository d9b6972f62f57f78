"""JSON that holds its sha256: whatever changes in a value, a name or the digest is found; older files have none."""

import hashlib
import json
import random
from contextlib import suppress

import pytest

from tunescope.errors import UserError
from tunescope.system import files, run_folder, sealed_json

VALUE = {"version": 2, "score": 0.417, "interval": (0.1, 1e-05), "note": "é\n\u2028", "none": None, "arms": [{"id": 1}]}


def test_what_is_read_is_what_was_put_and_the_digest_is_a_plain_sha256(tmp_path):
    path = tmp_path / "results.json"
    sealed_json.put(path, VALUE)
    assert sealed_json.read(path) == {**VALUE, "interval": [0.1, 1e-05]}
    raw = json.loads(path.read_text())
    digest = raw.pop("digest")
    assert digest == hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"digest": digest, **raw}))  # laid out anew it is the same
    assert sealed_json.read(path) == raw


def test_no_changed_byte_of_a_value_is_taken(tmp_path):
    path, draw = tmp_path / "results.json", random.Random(0)
    sealed_json.put(path, VALUE)
    whole, plain = path.read_bytes(), sealed_json.read(path)
    for _ in range(400):
        at = draw.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([draw.randrange(256)]) + whole[at + draw.randrange(2) :])
        with suppress(files.Damaged):
            assert sealed_json.read(path) == plain


def test_results_without_a_digest_are_read_where_they_are_of_a_version_that_had_none(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**VALUE, "version": 1}))
    assert run_folder.read_results(tmp_path)["score"] == 0.417
    path.write_text(json.dumps(VALUE))
    again = f"damaged: it has no digest.* type: tunescope resume {tmp_path}$"
    with pytest.raises(UserError, match=again):
        run_folder.read_results(tmp_path)
    sealed_json.put(path, VALUE)
    path.write_text(path.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(UserError, match="its values are not those of its digest"):
        run_folder.read_results(tmp_path)


def test_a_folder_of_the_older_version_is_gone_on_with_and_keeps_its_version(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"version": 1, "seeds": 3, "minutes": None}))
    (tmp_path / "arms" / "a").mkdir(parents=True)
    (tmp_path / "arms" / "a" / "result.json").write_text('{"status": "done"}')
    new = {"version": run_folder.VERSION, "seeds": 3, "minutes": 5}
    run_folder.check_config(tmp_path, new, ("minutes",))
    run_folder.write_config(tmp_path, new, ("minutes",))
    assert run_folder.read_config(tmp_path) == {**new, "version": 1}
    assert run_folder.finished(tmp_path, "a") == {"status": "done"}
    (tmp_path / "config.json").write_text(json.dumps(new))
    assert run_folder.finished(tmp_path, "a") is None
