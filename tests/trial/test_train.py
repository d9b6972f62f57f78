"""The training loop against loops written out, and resumption to the bit."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy, dropout
from transformers.optimization import Adafactor

from tunescope.errors import UserError
from tunescope.tasks.answers.not_numbers import NotNumbers
from tunescope.trial.train import loop, state
from tunescope.trial.train.batches import batches, stream
from tunescope.trial.train.loop import (
    Diverged,
    OutOfMemory,
    Problem,
    Saving,
    is_paused,
    memory_errors_named,
    train,
)
from tunescope.trial.train.optimizers import factor
from tunescope.trial.train.settings import Settings

N, D, K = 37, 11, 3


def problem(dtype=torch.float32, rates=None, p=0.0, scores=None):
    """Softmax regression on N rows; its score is minus the loss, or the next of `scores`."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=g, dtype=dtype)
    y = torch.randint(K, (N,), generator=g)
    labelled = torch.randint(1, 5, (N,), generator=g)
    w = torch.randn(D, K, generator=g, dtype=dtype).requires_grad_()
    b = torch.zeros(K, dtype=dtype).requires_grad_()

    def loss(rows):
        rows = torch.tensor(rows)
        inputs = dropout(x[rows], p)
        every = cross_entropy(inputs @ w + b, y[rows], reduction="none")
        return (every * labelled[rows]).sum() / labelled[rows].sum()

    def score():
        return next(scores) if scores else -cross_entropy(x @ w.detach() + b.detach(), y).item()

    return Problem({"w": w, "b": b}, rates or {"w": 0.03, "b": 0.03}, loss, score, [1] * N, labelled.tolist())


PLAIN = Settings(steps=20, batch_size=8, eval_every=1, patience=99, schedule="constant", warmup=0.0)


def losses(state):
    return [point["loss"] for point in state.curve]


def test_adamw_equals_a_loop_written_out():
    state = train(problem(), PLAIN, seed=3)

    same = problem()
    optimizer = torch.optim.AdamW([same.parameters["w"], same.parameters["b"]], lr=0.03, weight_decay=0.0)
    rows, want = stream(same.lengths, 8, 3), []
    for _ in range(20):
        loss = same.loss(next(rows))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([same.parameters["w"], same.parameters["b"]], 1.0)
        optimizer.step()
        want.append(loss.item())
    assert losses(state) == want


def test_runs_that_share_passes_have_their_part_of_the_time_where_they_pause_too(tmp_path, monkeypatch):
    settings, spent = replace(PLAIN, eval_every=5), []
    for sharing in (1, 4):
        ticks = count()
        (tmp_path / str(sharing)).mkdir()
        monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda ticks=ticks: float(next(ticks))))
        for until in (10, None):
            one = problem()
            saving = Saving(tmp_path / str(sharing), 1e9)
            work = loop.training(one, settings, 3, saving=saving, until=until, sharing=sharing)
            spent.append(loop._alone(work, one, settings).seconds)
    assert spent[0] > 9 and spent[1] > spent[0] + 9
    assert spent[2:] == [spent[0] / 4, spent[1] / 4]


def test_adafactor_equals_a_loop_written_out():
    state = train(problem(), replace(PLAIN, optimizer="adafactor"), seed=3)

    same = problem()
    leaves = [same.parameters["w"], same.parameters["b"]]
    optimizer = Adafactor(leaves, lr=0.03, relative_step=False, scale_parameter=False, warmup_init=False)
    rows, want = stream(same.lengths, 8, 3), []
    for _ in range(20):
        loss = same.loss(next(rows))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(leaves, 1.0)
        optimizer.step()
        want.append(loss.item())
    assert losses(state) == want


def test_two_rates_equal_two_parameter_groups_of_torch():
    state = train(problem(rates={"w": 0.03, "b": 0.3}), replace(PLAIN, clip=1e9, weight_decay=0.1), seed=3)

    same = problem()
    optimizer = torch.optim.AdamW(
        [{"params": [same.parameters["b"]], "lr": 0.3}, {"params": [same.parameters["w"]]}],
        lr=0.03,
        weight_decay=0.1,
    )
    rows, want = stream(same.lengths, 8, 3), []
    for _ in range(20):
        loss = same.loss(next(rows))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        want.append(loss.item())
    assert losses(state) == want


def test_a_paused_run_goes_on_where_it_was(tmp_path):
    settings = replace(PLAIN, eval_every=5)
    whole_problem = problem(p=0.1)
    torch.manual_seed(1)
    whole = train(whole_problem, settings, seed=3)
    torch.manual_seed(1)
    paused = train(problem(p=0.1), settings, seed=3, saving=Saving(tmp_path, 1e9), until=10)
    assert paused.step == 10 and is_paused(paused, settings) and not is_paused(whole, settings)
    seen, again = [], problem(p=0.1)
    state = train(again, settings, seed=3, saving=Saving(tmp_path, 1e9), report=lambda told: seen.append(told.step))
    assert seen == list(range(11, 21)) and state.curve == whole.curve
    assert all(torch.equal(again.parameters[name], value) for name, value in whole_problem.parameters.items())


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_accumulation_equals_the_whole_batch(parts):
    one, many = problem(torch.float64), problem(torch.float64)
    train(one, PLAIN, seed=0)
    train(many, replace(PLAIN, accumulate=parts), seed=0)
    for name in ("w", "b"):
        torch.testing.assert_close(many.parameters[name], one.parameters[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
@pytest.mark.parametrize("stop", [1, 7, 13])
def test_a_resumed_run_equals_an_undisturbed_one_to_the_bit(tmp_path, optimizer, stop):
    settings = replace(PLAIN, steps=17, eval_every=3, optimizer=optimizer, schedule="cosine", warmup=0.2)
    torch.manual_seed(5)
    whole = problem(p=0.3)
    want = train(whole, settings, seed=2)

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.step == stop + 1:  # the state of step `stop` is on the disk
            raise KilledError

    torch.manual_seed(5)
    with pytest.raises(KilledError):
        train(problem(p=0.3), settings, seed=2, saving=Saving(tmp_path, 0.0), report=kill)
    torch.manual_seed(99)
    resumed = problem(p=0.3)
    steps = []
    got = train(
        resumed,
        settings,
        seed=2,
        saving=Saving(tmp_path, 1e9),
        report=lambda progress: steps.append(progress.step),
    )

    assert steps[0] == stop + 1
    assert got.curve == want.curve
    assert (got.best_step, got.best_score) == (want.best_step, want.best_score)
    for name in ("w", "b"):
        assert torch.equal(resumed.parameters[name], whole.parameters[name])


def test_patience_and_the_best_tensors_outlive_a_kill(tmp_path):
    settings, scores = replace(PLAIN, patience=3), [0.5, 0.4, 0.3, 0.2, 0.9]
    whole = problem(scores=iter(scores))
    assert train(whole, settings, seed=2).step == 4

    def kill(progress):
        if progress.step == 3:  # the state of step 2 is on the disk
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(problem(scores=iter(scores)), settings, seed=2, saving=Saving(tmp_path, 0.0), report=kill)
    resumed = problem(scores=iter(scores[2:]))
    got = train(resumed, settings, seed=2, saving=Saving(tmp_path, 1e9))
    assert (got.step, got.best_step, got.best_score) == (4, 1, 0.5)
    assert all(torch.equal(resumed.parameters[name], value) for name, value in whole.parameters.items())


@pytest.mark.parametrize("damage", ["truncate", "flip", "json", "missing", "other tensors", "other shapes", "none"])
def test_a_damaged_state_is_told_and_not_used(tmp_path, damage, capsys):
    train(problem(), PLAIN, seed=2, saving=Saving(tmp_path, 0.0))
    (path,) = tmp_path.glob("state-*.safetensors")
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[:-4])
    elif damage == "flip":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "json":
        (tmp_path / "state.json").write_text("{")
    elif damage == "none":  # a run that saved nothing begins, and there is nothing to tell
        (tmp_path / "state.json").unlink()
    elif damage == "missing":
        path.unlink()
    again = problem()
    optimizer = torch.optim.AdamW(again.parameters.values())
    others = {"other tensors": {"c": torch.zeros(1)}}.get(damage, again.parameters)
    if damage == "other shapes":
        others = {name: torch.zeros(*leaf.shape, 2) for name, leaf in again.parameters.items()}
    assert state.load(tmp_path, others, optimizer) is None
    told = capsys.readouterr().err
    assert told.startswith(f"note: {tmp_path}/state") != (damage == "none") and "\n" not in told.rstrip()
    assert told == "" or told.endswith("The run that it is of is begun anew.\n")
    if damage.startswith("other"):
        return
    assert train(again, PLAIN, seed=2, saving=Saving(tmp_path, 1e9)).curve == train(problem(), PLAIN, seed=2).curve


def test_only_the_last_state_is_kept(tmp_path):
    train(problem(), PLAIN, seed=0, saving=Saving(tmp_path, 0.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state-00000020.safetensors", "state.json"]


def test_the_generator_of_every_gpu_that_is_trained_on_is_kept_and_put_back(tmp_path, monkeypatch):
    """By their order: a run may go on on other GPUs."""
    own = problem()
    optimizer = torch.optim.AdamW(own.parameters.values())
    there = [{"rng/cuda": torch.device("cuda", 1), "rng/cuda/1": torch.device("cuda", 3)}, {}]
    there[1] = {name: torch.device("cuda", device.index - 1) for name, device in there[0].items()}
    put = {}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.tensor([device.index], dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda kept, device: put.__setitem__(device.index, kept.item()))
    monkeypatch.setattr(state, "_generators", lambda parameters: there[0])
    state.save(tmp_path, state.State(), own.parameters, optimizer)
    monkeypatch.setattr(state, "_generators", lambda parameters: there[1])
    assert state.load(tmp_path, own.parameters, optimizer) is not None
    assert put == {0: 1, 2: 3}


def test_the_generators_are_those_of_all_gpus_first_of_that_which_holds_what_is_trained(monkeypatch):
    """Layers of a split model are on others, and draw their dropout there."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    leaves = [SimpleNamespace(device=torch.device(one)) for one in ("cuda:1", "cpu", "cuda:1")]
    expected = {"rng/cuda": torch.device("cuda:1")}
    expected |= {"rng/cuda/1": torch.device("cuda:0"), "rng/cuda/2": torch.device("cuda:2")}
    assert state._generators(dict(enumerate(leaves))) == expected
    assert state._generators(problem().parameters) == {}


def test_the_earliest_best_is_kept_and_waiting_ends_after_patience():
    scores = iter([0.1, 0.5, 0.5, 0.4, 0.3, 0.9])
    tried = problem(scores=scores)
    state = train(tried, replace(PLAIN, eval_every=2, patience=3), seed=0)
    assert (state.best_step, state.best_score, state.step) == (4, 0.5, 10)

    stopped = problem()
    train(stopped, replace(PLAIN, steps=4), seed=0)
    assert torch.equal(tried.parameters["w"], stopped.parameters["w"])


def test_the_last_step_is_always_scored():
    state = train(problem(), replace(PLAIN, steps=7, eval_every=5), seed=0)
    assert [point["step"] for point in state.curve] == [5, 7]


def test_a_loss_that_is_not_finite_stops_with_its_step():
    broken = problem(rates={"w": 1e37, "b": 1e37})
    with pytest.raises(Diverged, match=r"loss (nan|inf) at step \d+; a smaller learning rate may help"):
        train(broken, replace(PLAIN, steps=99), seed=0)


def test_of_a_loss_that_is_no_number_before_any_rate_has_acted_no_rate_is_blamed():
    nothing = replace(problem(), loss=lambda rows: torch.tensor(torch.nan, requires_grad=True))
    with pytest.raises(Diverged, match=r"^loss nan at step 1, where no rate has acted yet$"):
        train(nothing, PLAIN, seed=0)
    with pytest.raises(Diverged, match=r"^loss 2 at step 1, and behind it no scores; a smaller learning rate may"):
        raise Diverged(1, 2.0, ", and behind it no scores")


@pytest.mark.parametrize("part", ["score", "whole"])
def test_development_scores_that_are_no_numbers_stop_it_as_a_loss_does(part):
    def lost():
        raise NotNumbers(7)

    told = r"loss \d\S+ at step \d+, and behind it .* first on row 7; a smaller learning rate may help"
    with pytest.raises(Diverged, match=told):
        train(replace(problem(), **{part: lost}), replace(PLAIN, steps=3), seed=0)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_every_device_that_is_full_says_so_in_one_way(error):
    with pytest.raises(OutOfMemory, match="the device ran out of memory: "), memory_errors_named():
        raise error


def test_other_errors_keep_their_name():
    with pytest.raises(RuntimeError, match="shapes"), memory_errors_named():
        raise RuntimeError("shapes")


def test_schedules_rise_to_one_and_fall_to_nothing():
    steps = 100
    for schedule, last in (("constant", 1.0), ("linear", 1 / 90), ("cosine", 0.0003)):
        values = [factor(schedule, step, steps, 0.1) for step in range(steps)]
        assert values[:10] == [(step + 1) / 11 for step in range(10)]
        assert values[10] == 1.0 == max(values)
        assert values[-1] == pytest.approx(last, abs=1e-4)


def test_unknown_names_are_refused_with_the_list():
    with pytest.raises(UserError, match="schedule 'step' is not known; it is one of: constant, linear, cosine"):
        factor("step", 9, 10, 0.0)
    with pytest.raises(UserError, match="optimizer 'sgd' is not known; it is one of: adamw, adafactor"):
        train(problem(), replace(PLAIN, optimizer="sgd"), seed=0)


@pytest.mark.parametrize("rows", [1, 7, 8, 1003])
def test_an_epoch_holds_every_row_once_and_depends_on_seed_and_epoch_only(rows):
    lengths = [(row * 7919) % 53 for row in range(rows)]
    first = batches(lengths, 8, seed=1, epoch=0)
    assert sorted(row for batch in first for row in batch) == list(range(rows))
    assert first == batches(lengths, 8, seed=1, epoch=0)
    if rows > 100:
        assert first != batches(lengths, 8, seed=1, epoch=1)
        assert first != batches(lengths, 8, seed=2, epoch=0)


def test_batches_hold_rows_of_like_length():
    lengths = [(row * 7919) % 101 for row in range(4000)]
    spread = [max(lengths[r] for r in batch) - min(lengths[r] for r in batch) for batch in batches(lengths, 8, 0, 0)]
    assert sum(spread) / len(spread) < 5


@pytest.mark.parametrize("start", [0, 3, 5, 12])
def test_the_stream_can_be_entered_at_any_step(start):
    whole, late = stream([1] * 19, 4, seed=7), stream([1] * 19, 4, seed=7, start=start)
    for _ in range(start):
        next(whole)
    assert [next(whole) for _ in range(11)] == [next(late) for _ in range(11)]


def test_the_second_epoch_of_a_seed_is_no_epoch_of_the_next_seed():
    lengths = [(row * 7919) % 53 for row in range(1003)]
    orders = [batches(lengths, 8, seed, epoch) for seed in range(4) for epoch in range(4)]
    assert all(one != other for at, one in enumerate(orders) for other in orders[:at])


def test_a_run_that_is_scored_once_has_the_loss_of_its_last_half():
    every = losses(train(problem(), PLAIN, seed=3))
    (last,) = losses(train(problem(), replace(PLAIN, eval_every=PLAIN.steps), seed=3))
    assert last == pytest.approx(sum(every[9:]) / 11, abs=1e-9)  # from step 10 of 20 on


def test_the_loss_of_a_score_at_the_middle_of_a_run_is_that_of_all_steps_since_the_one_before():
    every = losses(train(problem(), PLAIN, seed=3))
    first, *_ = losses(train(problem(), replace(PLAIN, eval_every=12), seed=3))
    assert first == pytest.approx(sum(every[:12]) / 12, abs=1e-9)  # steps 1 to 12 of 20
