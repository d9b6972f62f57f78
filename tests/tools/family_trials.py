"""What every method does on every family of the zoo: it works, and rightly, or is refused with a reason."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import tiny
import torch
from torch import Tensor
from traces import assert_no_trace, trace
from zoo import ZOO, inputs, kind_of, paddings, zoo

import tunescope as ts
from tunescope.attachment.merge import can_merge
from tunescope.attachment.sites.site_map import site_map, sites_of
from tunescope.methods.artifact import Artifact, Context, TokenContext
from tunescope.models.anatomy import anatomy
from tunescope.models.family import find_family
from tunescope.models.positions import is_rotary

ARMS = {
    "text": "text:text=w5 w6 w7 w8",
    "soft": "soft:length=3",
    "prefix": "prefix:length=3",
    "infix": "infix:length=2",
    "lora": "lora:rank=2",
    "lora at all-linear": "lora:rank=2,sites=all-linear",
    "adapter": "adapter:bottleneck=3,activation=gelu",
    "bias": "bias",
    "full": "full",
}
CLOSE = 1e-9  # in float64, of the largest output
OVERFLOWS = {"fsmt"}  # its own mask, in float64, where softmax is not
MEMORY = "/dev/shm"  # where a file that is flushed takes no time
WORKS, UNTRAINED = "", "It attaches, and no gradient reaches it: it changes where the model only chooses."
IN_TRAINING = {"rwkv"}  # in eval mode it writes into its state, and has no gradients


FAMILIES = (*tiny.configs(), *ZOO)


def made(name: str) -> Any:
    """A tiny model of the family, whether a file of ours maps it or not."""
    return zoo(name) if name in ZOO else tiny.make(name)


def _inputs(name: str, model: Any, padding: str = "none") -> dict[str, Tensor]:
    return inputs(name, model, padding) if name in ZOO else tiny.batch(model, padding)


def _paddings(name: str) -> tuple[str, ...]:
    return paddings(name) if name in ZOO else ("none", "left", "right")


def build(name: str, found: Mapping[str, str]) -> str:
    """How it is built, as far as a method can tell: families of one build have the same sites, positions and refusals.

    found: what `trials` gives.
    """
    model = made(name)
    try:
        sites = {
            site.partition(".")[2].partition(".")[2]: type(one.h.module).__name__
            for site, one in sites_of(model).items()
        }
        seen = site_map(model)
        notes = sorted(set(seen.notes.values())), bool(seen.idle)
    except ts.UserError:
        sites, notes = {}, ([], False)
    told = model.config.to_dict()
    types = sorted(set(told.get("layer_types") or ()))
    windows = [
        bool(told.get(key)) for key in ("sliding_window", "num_experts", "num_local_experts", "n_routed_experts")
    ]
    which = anatomy(model).kind, is_rotary(model), types, windows
    return repr((which, sorted(sites.items()), notes, [bool(reason) for reason in found.values()]))


def trials(name: str) -> dict[str, str]:
    """Method -> WORKS, or why it is refused. AssertionError for what is wrong, or not trained, without a word."""
    model = made(name)
    alone = [padding for padding in _paddings(name)[1:] if _from_row_alone(name, model, padding, False) <= CLOSE]
    with tiny.Float64() if name in OVERFLOWS else nullcontext():
        return {method: _tried(name, model, method, alone) for method in ARMS}


def _tried(name: str, model: Any, method: str, alone: list[str]) -> str:
    before = trace(model)
    try:
        artifacts = tiny.away(model, ARMS[method], by=0.1)
        with ts.attach(model, *artifacts, tokenizer=tiny.tokenizer()):
            pass
    except ts.UserError as refusal:
        assert_no_trace(model, before)
        return str(refusal).replace(repr(model.config.model_type), "FAMILY").replace(type(model).__name__, "MODEL")
    if not _is_trained(name, model, artifacts):
        return UNTRAINED
    _check_saved(name, model, artifacts)
    if all(can_merge(one.spec) for one in artifacts):
        _check_merged(name, model, artifacts)
    if any(isinstance(one.spec, Context) for one in artifacts) and method != "text":  # which is soft with given rows
        _check_padded(name, model, artifacts, alone)
    if any(isinstance(one.spec, TokenContext) for one in artifacts) and _reads_ids(name):
        _check_in_front(name, model, artifacts[0])
    assert_no_trace(model, before)
    return WORKS


def _reads_ids(name: str) -> bool:
    if name not in ZOO:
        return find_family(name).kind == "decoder"
    return kind_of(name) in ("decoder", "mixture", "hybrid", "recurrent")


def _given(name: str, model: Any, tuned: Any, padding: str = "none") -> dict[str, Tensor]:
    given = _inputs(name, model, padding)
    if tuned.wants_output_start:
        given["output_start"] = torch.tensor([3, 2])
    return given


def _output(model: Any, given: dict[str, Tensor]) -> Tensor:
    with torch.no_grad(), tiny.Float64():
        out: Tensor = tiny.output(model, given)
    return out


def _check_close(got: Tensor, wanted: Tensor, what: str) -> None:
    far = float((got - wanted).abs().max() / wanted.abs().max())
    assert far <= CLOSE, f"{what}: {far:.1e} of the largest output"


def _is_trained(name: str, model: Any, artifacts: list[Artifact]) -> bool:
    """Whether a gradient reaches it: then every tensor of it."""
    plain = _output(model, _inputs(name, model))
    with ts.attach(model, *artifacts) as tuned:
        tuned.train()
        model.train(name in IN_TRAINING)
        given = _given(name, model, tuned)
        with tiny.Float64():
            out = tiny.output(model, given)
        assert not torch.equal(out, plain), "it changes nothing"
        if tuned.parameters() and not out.requires_grad:
            return False
        if leaves := tuned.named_parameters():
            (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)).sum().backward()
            still = [key for key, leaf in leaves.items() if leaf.grad is None or not leaf.grad.any()]
            idle = [key for key in still if not isinstance(artifacts[0].spec, ts.Full | ts.Bias)]
            assert not idle, f"not trained: {idle[:3]} and {len(idle)} in all"
        model.eval()
        for leaf in tuned.parameters():
            leaf.grad = None
    return True


def _check_saved(name: str, model: Any, artifacts: list[Artifact]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as folder:
        with ts.attach(model, *artifacts) as tuned:
            given = _given(name, model, tuned)
            wanted = _output(model, given)
            ts.save(Path(folder) / "saved", tuned.artifacts, model=model)
        with ts.attach(model, *ts.load(Path(folder) / "saved")):
            _check_close(_output(model, given), wanted, "read back")


def _check_merged(name: str, model: Any, artifacts: list[Artifact]) -> None:
    given = _inputs(name, model)
    with ts.attach(model, *artifacts):
        wanted = _output(model, given)
    with suppress(ts.UserError):  # of weights that several modules share
        _check_close(_output(ts.merge(copy.deepcopy(model), *artifacts), given), wanted, "merged")


def _check_padded(name: str, model: Any, artifacts: list[Artifact], alone: list[str]) -> None:
    """Each real token of a padded row without positions is as in the row alone, or the padding is refused.

    alone: the paddings under which it is so in the bare model.
    """
    for padding in alone:
        with suppress(ts.UserError), ts.attach(model, *artifacts) as tuned:
            far = _from_row_alone(name, model, padding, tuned.wants_output_start)
            assert far <= CLOSE, f"padded on the {padding}, a row is {far:.1e} off what it is alone"


def _from_row_alone(name: str, model: Any, padding: str, told: bool) -> float:
    given = _inputs(name, model, padding)
    given.pop("position_ids", None)
    lengths = given["attention_mask"].sum(1)
    starts = torch.full((len(lengths),), given["input_ids"].shape[1] - 1) if padding == "left" else lengths - 1
    whole = _output(model, given | ({"output_start": starts} if told else {}))
    worst = 0.0
    for row, mask in enumerate(given["attention_mask"].bool()):
        alone = {"input_ids": given["input_ids"][row : row + 1, mask]}
        if "decoder_input_ids" in given:
            alone["decoder_input_ids"] = given["decoder_input_ids"][row : row + 1]
        wanted = _output(model, alone | ({"output_start": torch.tensor([int(mask.sum()) - 1])} if told else {}))[0]
        got = whole[row] if "decoder_input_ids" in given else whole[row, mask]
        worst = max(worst, float((got - wanted).abs().max() / wanted.abs().max()))
    return worst


def _check_in_front(name: str, model: Any, artifact: Artifact) -> None:
    """A context of tokens is what the same tokens are in the input."""
    text, rows = _inputs(name, model)["input_ids"], artifact.tensors
    with ts.attach(model, artifact):
        got = _output(model, {"input_ids": text})
    if "ids" in rows:
        front = rows["ids"].expand(len(text), -1)
        whole = _output(model, {"input_ids": torch.cat([front, text], 1)})
    else:
        front = rows["embeddings"].expand(len(text), -1, -1)
        whole = _output(model, {"inputs_embeds": torch.cat([front, model.get_input_embeddings()(text)], 1)})
    _check_close(got, whole[:, front.shape[1] :], "beside the same tokens in the input")
