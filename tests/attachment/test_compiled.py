"""Under torch.compile what is attached is as without it, gradients and all, and never out of date."""

import gc
import inspect
import weakref
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import warm
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import tunescope as ts
from tunescope.attachment.guards import compiled

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
    done = warm.run(["-c", program], cwd=Path(__file__).parents[1] / "tools", check=True)
    assert done.stderr == ""


def compilations(counter: CompileCounterWithBackend, *runs: tuple[Any, dict[str, Tensor]]) -> int:
    """How many graphs are compiled while each runs once."""
    before = counter.frame_count
    with torch.no_grad():
        for compiled, given in runs:
            compiled(**given)
    return counter.frame_count - before


@pytest.mark.parametrize("what", ["lora:rank=2", "bank"])
@torch._dynamo.config.patch(recompile_limit=3)
def test_what_is_compiled_of_other_models_stays_and_so_does_the_bare_models(what: str) -> None:
    torch.manual_seed(0)
    other, twin, model = torch.nn.Linear(3, 3), shallow("gpt2"), shallow("gpt2").requires_grad_(False)
    counter = CompileCounterWithBackend("eager")
    given, x = tiny.batch(model), {"input": torch.ones(2, 3)}
    runs = [(torch.compile(one, backend=counter), its) for one, its in ((other, x), (twin, given), (model, given))]
    assert compilations(counter, *runs) > 0 and compilations(counter, *runs) == 0
    for seed in range(4):  # more often than torch, so told, compiles one function anew before it gives up
        artifacts = tiny.away(model, "lora:rank=2", seed)
        with ts.attach(model, *([ts.Bank({"anna": artifacts})] if what == "bank" else artifacts)):
            assert compilations(counter, *runs[:2]) == 0
            if what != "bank":
                assert compilations(counter, runs[2]) == 1
                assert compilations(counter, *runs) == 0
        assert compilations(counter, *runs) == 0


@pytest.mark.parametrize(
    "place",
    [
        "layer",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("whole", "in a function", "its forward", "in place")),
    ],
)
def test_whatever_part_is_compiled_it_is_never_out_of_date(place: str) -> None:
    """Two models of one class share what torch compiles: neither may run with what is attached to the other."""
    models = [shallow("llama").requires_grad_(False) for _ in range(2)]
    given, counter = tiny.batch(models[0]), CompileCounterWithBackend("eager")
    with torch.no_grad():
        bare = [model(**given).logits for model in models]
        runs = [compiled_part(model, place, counter) for model in models]
        kept: dict[int, tuple[Any, Tensor]] = {}
        # 0 and 1: attach to that model, or detach; the second arm is at other sites, and bare comes first and last
        arms = iter(
            ["lora:rank=2", "adapter:bottleneck=3", "lora:rank=2,sites=ffn.out", "prefix:length=2", "soft:length=2"]
        )
        turns = [0, 1, 0, 1, 1, 0, 1, 0] if place == "whole" else [0, 1, 0, 1]
        for turn, which in enumerate(turns if place != "whole" else [*turns, 0, 0]):
            now = [kept[index][1] if index in kept else bare[index] for index in range(2)]
            for run, wanted in zip(runs, now, strict=True):
                torch.testing.assert_close(run(given), wanted, rtol=0, atol=1e-6)
            if which in kept:
                kept.pop(which)[0].detach()
            else:
                tuned = ts.attach(models[which], *tiny.away(models[which], next(arms), turn))
                kept[which] = tuned, eagerly(models[which], given)
                assert not torch.allclose(kept[which][1], bare[which], atol=1e-3)
        for run, wanted in zip(runs, bare, strict=True):
            torch.testing.assert_close(run(given), wanted, rtol=0, atol=1e-6)
    assert counter.frame_count > 0


def eagerly(model: Any, given: dict[str, Tensor]) -> Tensor:
    with torch.compiler.set_stance("force_eager"):
        logits: Tensor = model(**given).logits
    return logits


def compiled_part(model: Any, place: str, counter: Any) -> Any:
    if place == "whole":
        run = torch.compile(model, backend=counter)
    elif place == "in a function":
        run = torch.compile(lambda **given: model(**given), backend=counter)
    else:
        run = model
    if place == "layer":
        model.model.layers[0] = torch.compile(model.model.layers[0], backend=counter)
    if place == "in place":
        model.model.layers[0].compile(backend=counter)
    if place == "its forward":
        model.forward = torch.compile(model.forward, backend=counter)
    return lambda given: run(**given).logits


def test_a_model_compiled_while_attached_is_right_then_and_bare() -> None:
    model = shallow("gpt2").requires_grad_(False)
    given = tiny.batch(model)
    with torch.no_grad():
        bare = model(**given).logits
        with ts.attach(model, *tiny.away(model, "lora:rank=2", 0)):
            wanted = model(**given).logits
            compiled = torch.compile(model, backend="eager", fullgraph=True)
            torch.testing.assert_close(compiled(**given).logits, wanted, rtol=0, atol=1e-6)
        torch.testing.assert_close(compiled(**given).logits, bare, rtol=0, atol=1e-6)
        assert (wanted - bare).abs().max() > 1e-3


def test_a_forward_of_somebody_elses_is_passed_on_to_and_given_back() -> None:
    model, calls = tiny.make("gpt2"), []
    inner, signature = model.forward, inspect.signature(model.forward)

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append("first")
        return inner(*args, **kwargs)

    model.forward = theirs
    with ts.attach(model, ts.LoRA(rank=2)):
        model(**tiny.batch(model))
        assert calls == ["first"]
    assert model.forward is theirs
    del model.forward
    tuned = ts.attach(model, ts.LoRA(rank=2))
    assert inspect.signature(model.forward) == signature
    model.forward = theirs
    tuned.detach()
    assert model.forward is theirs  # put there meanwhile, and not ours to take away


def test_attaching_resets_nothing_of_torchs_also_where_a_model_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code may be running when a model is collected that was never detached: nothing is freed then."""
    resets: list[int] = []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: resets.append(1))
    kept = ts.attach(tiny.make("llama"), ts.LoRA(rank=2))
    before = len(compiled._IN_USE)
    lost = tiny.make("llama")
    gone = weakref.ref(lost)
    ts.attach(lost, ts.LoRA(rank=2))
    del lost
    gc.collect()
    assert gone() is None and len(compiled._IN_USE) == before + 1  # its code is kept until something is attached
    kept.detach()
    with pytest.raises(KeyError), ts.attach(kept.model, ts.LoRA(rank=2)):
        raise KeyError
    assert len(compiled._IN_USE) == before - 1 and not compiled._COLLECTED
    assert not resets
