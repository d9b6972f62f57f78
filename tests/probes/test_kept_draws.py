"""What was measured is kept as it ends: a study that stopped goes on, with the same numbers."""

import json
import math
from pathlib import Path

import pytest
import tinyrun
import torch
import transformers
from tokenizers.normalizers import Lowercase

from tunescope.probes.anchors import study
from tunescope.probes.anchors.draws import Draws
from tunescope.probes.anchors.request import AnchorRequest
from tunescope.probes.demonstrations import auc, isolate
from tunescope.trial.plan import Plan


def test_a_study_that_was_stopped_measures_what_is_missing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = tinyrun.write(tmp_path)
    words = {"neg": "neg", "pos": "pos"}
    plan = Plan(model=model, data=data, task={"kind": "classification", "words": words}, seeds=(0, 1))
    request = AnchorRequest(plan, 1, 6, ("isolate", "auc"))
    whole = study.study(request, lambda _: None)
    asked = list[tuple[str, int]]()
    for section in (isolate, auc):

        def counted(round, measure=section.measure, name=section.__name__):
            asked.append((name.rpartition(".")[2], round.seed))
            if len(asked) == 3:
                raise KeyboardInterrupt
            return measure(round)

        monkeypatch.setattr(section, "measure", counted)
    with pytest.raises(KeyboardInterrupt):
        study.study(request, lambda _: None, tmp_path)
    again = study.study(request, lambda _: None, tmp_path)
    assert asked == [("isolate", 0), ("isolate", 1), ("auc", 0), ("auc", 0), ("auc", 1)]
    assert again.draws == whole.draws and again.findings == whole.findings
    changed = AnchorRequest(plan, 1, 5, ("auc",))  # other rows: nothing that is kept is theirs
    study.study(changed, lambda _: None, tmp_path)
    assert asked[5:] == [("auc", 0), ("auc", 1)]


@pytest.mark.parametrize("changed", ["head", "config", "tokenizer"])
def test_what_is_kept_is_of_one_head_config_and_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    model, data = tinyrun.write(tmp_path)
    whole = tinyrun.model()
    untied = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**whole.config.to_dict() | {"tie_word_embeddings": False})
    )
    untied.load_state_dict(whole.state_dict())
    untied.save_pretrained(model)
    plan = Plan(model=model, data=data, task={"kind": "classification", "words": {"neg": "neg", "pos": "pos"}})
    request = AnchorRequest(plan, 1, 2, ("auc",))
    asked, measure = list[int](), auc.measure
    monkeypatch.setattr(auc, "measure", lambda round: asked.append(round.seed) or measure(round))
    for _ in range(2):
        study.study(request, lambda _: None, tmp_path)
    assert asked == list(plan.seeds)
    if changed == "head":
        with torch.no_grad():
            untied.lm_head.weight.neg_()
        untied.save_pretrained(model)
    if changed == "config":
        untied.config.layer_norm_epsilon = 0.5
        untied.save_pretrained(model)
    if changed == "tokenizer":
        tokenizer = tinyrun.tokenizer()
        tokenizer.backend_tokenizer.normalizer = Lowercase()
        tokenizer.save_pretrained(model)
    study.study(request, lambda _: None, tmp_path)
    assert asked == [*plan.seeds, *plan.seeds]


def test_what_is_damaged_is_measured_again_and_what_is_undefined_stays_so(tmp_path: Path) -> None:
    kept = Draws(tmp_path, {"base": "a"})
    first = kept.of("auc", 0, lambda: {"auc": [0.5, math.nan]})
    assert first["auc"][0] == 0.5 and math.isnan(first["auc"][1])
    (path,) = (tmp_path / "draws").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auc": [0.6, None]}))
    assert kept.of("auc", 0, lambda: {"auc": [0.7]}) == {"auc": [0.7]}
    assert kept.of("auc", 0, lambda: {"auc": [0.8]}) == {"auc": [0.7]}
    assert Draws(None, {}).of("auc", 0, lambda: {"auc": [0.8]}) == {"auc": [0.8]}
