"""Under torch.compile what is attached is as without it, gradients and all, and never out of date."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import tunescope as ts

# in how many graphs a pass is compiled: contexts and biases are put in place outside of them, and a head on a bare
# encoder is a graph of its own
GRAPHS = [
    ("llama", "adapter:bottleneck=3+lora:rank=2", 1),
    ("bert", "head:n_labels=3+lora:rank=2", 2),
    ("llama", "prefix:length=3,mlp=4+soft:length=2", 2),
    ("gpt2", "bias", 2),
]


def shallow(family: str) -> Any:
    """One layer, for compiling takes a second a layer."""
    config = tiny.configs()[family]
    for name in ("num_layers", "num_decoder_layers", "num_hidden_layers", "n_layer"):
        if hasattr(config, name):
            setattr(config, name, 1)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:1]
    return tiny.build(tiny.auto_class(config), config, dtype=torch.float32)


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def step(model: Any, run: Any, tuned: Any, given: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    out = tiny.output(run, given)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    found = {name: value.grad for name, value in tuned.named_parameters().items()}
    for value in tuned.parameters():
        value.grad = None
    return out.detach(), found


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, while it compiles
@pytest.mark.parametrize(("family", "arm", "graphs"), GRAPHS)
def test_compiled_is_as_eager_with_gradients_and_few_graphs(family: str, arm: str, graphs: int) -> None:
    model = shallow(family)
    given, counter = tiny.batch(model), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=graphs == 1)
    with ts.attach(model, *tiny.away(model, arm, 0)) as tuned, tuned.registered():
        wanted, slopes = step(model, model, tuned, given)
        out, gradients = step(model, compiled, tuned, given)
        assert counter.frame_count == graphs
        assert_as(out, wanted, gradients, slopes)
        with torch.no_grad():
            for value in tuned.parameters():
                value += 0.1
        again, gradients = step(model, compiled, tuned, given)
        assert counter.frame_count == graphs  # a step of training compiles nothing anew
        wanted, slopes = step(model, model, tuned, given)
        assert_as(again, wanted, gradients, slopes)


def assert_as(out: Tensor, wanted: Tensor, gradients: dict[str, Tensor], slopes: dict[str, Tensor]) -> None:
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-5)
    for name, slope in slopes.items():
        assert slope.abs().max() > 0
        torch.testing.assert_close(gradients[name], slope, rtol=1e-5, atol=1e-5)


def test_what_comes_and_goes_after_compiling_is_seen() -> None:
    """Compiled code does not look for new hooks: without a thought, a LoRA attached to it would be left out."""
    model = shallow("gpt2").requires_grad_(False)
    given, compiled = tiny.batch(model), torch.compile(model, backend="eager")
    with torch.no_grad():
        bare = model(**given).logits
        assert torch.equal(compiled(**given).logits, bare)
        for seed, arm in enumerate(["lora:rank=2", "lora:rank=2"]):
            with ts.attach(model, *tiny.away(model, arm, seed)) as tuned:
                wanted = model(**given).logits
                assert torch.equal(compiled(**given).logits, wanted) and not torch.equal(wanted, bare)
                with tuned.paused():
                    assert torch.equal(compiled(**given).logits, bare)
                assert torch.equal(compiled(**given).logits, wanted)
            assert torch.equal(compiled(**given).logits, bare)


def test_dropout_of_a_lora_is_switched_in_compiled_code_too() -> None:
    model = shallow("gpt2")
    given, compiled = tiny.batch(model), torch.compile(model, backend="eager")
    with ts.attach(model, *tiny.away(model, "lora:rank=2,dropout=0.5", 0)) as tuned:
        wanted = model(**given).logits
        torch.testing.assert_close(compiled(**given).logits, wanted, rtol=0, atol=1e-6)
        tuned.train()
        assert (compiled(**given).logits - wanted).abs().max() > 1e-3
        tuned.eval()
        torch.testing.assert_close(compiled(**given).logits, wanted, rtol=0, atol=1e-6)


def test_a_bank_runs_as_it_is_under_compile_whatever_rows_come() -> None:
    model = shallow("gpt2").requires_grad_(False)
    given, compiled = tiny.batch(model), torch.compile(model, backend="eager")
    members = {"anna": tiny.away(model, "lora:rank=2", 0), "ben": tiny.away(model, "prefix:length=3", 1)}
    with torch.no_grad(), ts.attach(model, ts.Bank(members)):
        for rows in (["anna", "ben"], [None, None], ["anna", "anna"], ["ben", None], [None, "anna"]):
            wanted = model(**given, rows=rows).logits
            assert torch.equal(compiled(**given, rows=rows).logits, wanted)


def test_python_ends_in_silence_while_a_model_is_attached() -> None:
    program = "import tiny, tunescope as ts; tuned = ts.attach(tiny.make('llama'), ts.Prefix(length=2))"
    here = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_model_collected_while_attached_resets_nothing_for_compiled_code_may_be_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resets: list[int] = []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: resets.append(1))
    kept = ts.attach(tiny.make("llama"), ts.LoRA(rank=2))
    ts.attach(tiny.make("llama"), ts.LoRA(rank=2))
    gc.collect()
    assert len(resets) == 2  # one for each that was attached
    kept.detach()
    assert len(resets) == 3
    with pytest.raises(KeyError), ts.attach(kept.model, ts.LoRA(rank=2)):
        raise KeyError
    assert len(resets) == 5
