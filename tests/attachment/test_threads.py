"""One model, called from several threads: each gets what it asked for."""

import asyncio
import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

import tunescope as ts
from tunescope.attachment.bank.turns import Turns
from tunescope.attachment.guards import single


@pytest.fixture(autouse=True)
def _by_turns() -> Iterator[None]:
    """Threads take turns five hundred times as often as by default: more meetings, and in less time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 500)
    yield
    sys.setswitchinterval(before)


def at_once(*calls: Callable[[], Tensor], times: int = 8) -> list[list[Tensor]]:
    """What each call gives, again and again in a thread of its own."""
    start, faults = threading.Barrier(len(calls)), []
    found: list[list[Tensor]] = [[] for _ in calls]

    def run(index: int) -> None:
        start.wait()
        try:
            with torch.no_grad():
                found[index] += [calls[index]() for _ in range(times)]
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not faults
    return found


def elsewhere(call: Callable[[], Any]) -> list[BaseException]:
    """What a call raises in a thread of its own."""
    faults: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return faults


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_rows_of_a_bank_that_threads_call_at_once_are_as_with_their_artifacts_alone(name: str) -> None:
    model = tiny.make(name)
    arms = {"a": "prefix:length=3", "b": "lora:rank=2", "c": "soft:length=2", "d": "adapter:bottleneck=3"}
    made = {key: tiny.away(model, arm, seed) for seed, (key, arm) in enumerate(arms.items())}
    asked = [["a", "b"], ["c", "a", "d"], ["b", None, "c"]]
    texts = [tiny.ids(len(rows), 4 + len(rows), seed=index) for index, rows in enumerate(asked)]
    alone = {None: [tiny.output(model, {"input_ids": text}) for text in texts]}
    for key, artifacts in made.items():
        with ts.attach(model, *artifacts):
            alone[key] = [tiny.output(model, {"input_ids": text}) for text in texts]
    with ts.attach(model, ts.Bank(made)):

        def call(text: Tensor, rows: list[str | None]) -> Tensor:
            return tiny.output(model, {"input_ids": text, "rows": rows})  # type: ignore[dict-item]

        got = at_once(*(lambda t=text, r=rows: call(t, r) for text, rows in zip(texts, asked, strict=True)))
    for index, rows in enumerate(asked):
        want = torch.stack([alone[key][index][row] for row, key in enumerate(rows)])
        for one in got[index]:
            torch.testing.assert_close(one, want, rtol=0, atol=1e-11)


def test_what_threads_generate_at_once_is_what_they_generate_alone() -> None:
    model = tiny.make("gpt2")
    bank = ts.Bank({"a": tiny.away(model, "infix:length=3", 1), "b": tiny.away(model, "lora:rank=2", 2)})
    texts = [tiny.ids(2, 4, seed=1), tiny.ids(2, 9, seed=2)]

    def call(text: Tensor, rows: list[str]) -> Tensor:
        found: Tensor = model.generate(input_ids=text, rows=rows, max_new_tokens=4, do_sample=False)
        return found

    with ts.attach(model, bank):
        calls = [lambda: call(texts[0], ["a", "b"]), lambda: call(texts[1], ["b", "a"])]
        alone = [one() for one in calls]
        got = at_once(*calls, times=3)
    assert all(torch.equal(one, alone[index]) for index, some in enumerate(got) for one in some)


@pytest.mark.parametrize("arm", ["adapter:bottleneck=3,placement=parallel,scale=2.0", "adapter:bottleneck=3"])
def test_adapters_in_threads_add_what_they_add_in_one(arm: str) -> None:
    model = tiny.make("llama")
    texts = [tiny.ids(2, 7, seed=1), tiny.ids(2, 7, seed=2), tiny.ids(3, 12, seed=3)]
    with ts.attach(model, *tiny.away(model, arm, 1)):
        want = [model(input_ids=text).logits for text in texts]
        got = at_once(*(lambda t=text: model(input_ids=t).logits for text in texts))
    assert all(torch.equal(one, want[index]) for index, some in enumerate(got) for one in some)


def test_what_a_block_says_of_rows_holds_in_its_own_thread() -> None:
    model = tiny.make("llama")
    with ts.attach(model, ts.Bank({"a": ts.LoRA(rank=2)})) as tuned, tuned.rows(["a"]):
        model(input_ids=tiny.ids(1))
        (fault,) = elsewhere(lambda: model(input_ids=tiny.ids(1)))
    assert "every call says what each row takes" in str(fault)


def test_what_a_block_says_of_rows_holds_in_its_own_task_and_in_what_that_runs_in_a_thread() -> None:
    """Tasks of asyncio share a thread, and the blocks of several are open at once."""
    model, text = tiny.make("llama"), tiny.ids(1)
    arms = {"a": tiny.away(model, "lora:rank=2"), "b": tiny.away(model, "prefix:length=2")}
    want = {None: logits(model, text)}
    for name, artifacts in arms.items():
        with ts.attach(model, *artifacts):
            want[name] = logits(model, text)

    async def task(tuned: Any, name: str | None, everybody: asyncio.Barrier) -> list[Tensor]:
        with tuned.rows([name]):
            await everybody.wait()
            found = [logits(model, text), await asyncio.to_thread(logits, model, text)]
            await everybody.wait()
            return [*found, logits(model, text)]

    async def all_of_them(tuned: Any) -> list[list[Tensor]]:
        everybody = asyncio.Barrier(len(want))
        return await asyncio.gather(*(task(tuned, name, everybody) for name in want))

    with ts.attach(model, ts.Bank(arms)) as tuned:
        got = asyncio.run(all_of_them(tuned))
    for found, alone in zip(got, want.values(), strict=True):
        for one in found:
            torch.testing.assert_close(one, alone, rtol=0, atol=1e-12)


def logits(model: Any, text: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=text).logits
    return found


def test_what_an_interrupted_call_asked_for_is_let_go_at_the_end() -> None:
    """Ctrl-C passes by the hooks that torch calls whatever is raised."""
    model = tiny.make("gpt2")
    bank = ts.Bank({"a": tiny.away(model, "lora:rank=2")})
    tuned, entry = ts.attach(model, bank), weakref.ref(bank.entry("a"))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    handle = model.transformer.h[0].register_forward_pre_hook(interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        tuned.model(input_ids=tiny.ids(1), rows=["a"])
    handle.remove()
    tuned.detach()
    del tuned, bank
    gc.collect()
    assert entry() is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_a_call_that_is_cut_short_keeps_nobody_waiting(kind: type[BaseException]) -> None:
    model = tiny.make("llama")
    given = {"input_ids": tiny.ids(1), "rows": ["a"]}

    def cut(*_: object) -> None:
        raise kind

    with ts.attach(model, ts.Bank({"a": ts.LoRA(rank=2)})):
        handle = model.model.layers[0].register_forward_pre_hook(cut)
        with pytest.raises(kind):
            model(**given)
        handle.remove()
        assert not elsewhere(lambda: model(**given))


def test_layers_are_not_computed_again_while_another_thread_calls_the_model() -> None:
    model = tiny.make("llama").train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    given = {"input_ids": tiny.ids(1), "rows": ["a"]}
    with ts.attach(model, ts.Bank({"a": ts.LoRA(rank=2)})) as tuned:
        tuned.train()
        losses = [model(**given).logits.sum() for _ in range(2)]
        losses[0].backward()
        with tuned._turns.lock:  # as in a call
            (fault,) = elsewhere(losses[1].backward)
    assert isinstance(fault, ts.UserError) and "train it in one thread" in str(fault)


def test_a_turn_ends_once_and_only_in_its_thread() -> None:
    module = torch.nn.Linear(2, 2)
    turns = Turns()
    with turns.taken([module]):
        module(torch.zeros(2))
        assert not turns._on and not elsewhere(lambda: module(torch.zeros(2)))
        with turns.lock:
            turns._on.append(module)
            elsewhere(lambda: turns._end(module))
            assert turns._on == [module]
            turns._on.clear()
    assert not module._forward_hooks and not module._forward_pre_hooks and "forward" not in module.__dict__


@pytest.mark.parametrize("arm", ["soft:length=3", "inputs:length=3", "prefix:length=3", "infix:length=3"])
def test_threads_that_compute_in_other_modes_get_what_each_gets_alone(arm: str) -> None:
    model = tiny.make("mistral")  # a window, in which it matters where a text stands
    texts = [tiny.ids(2, 7, seed=1), tiny.ids(2, 19, seed=2)]

    def call(text: Tensor, mode: Callable[[], Any]) -> Tensor:
        with mode():
            found: Tensor = model(input_ids=text).logits
        return found

    with ts.attach(model, *tiny.away(model, arm, 1)):
        calls = [lambda: call(texts[0], torch.inference_mode), lambda: call(texts[1], torch.no_grad)]
        alone = [one() for one in calls]
        got = at_once(*calls, times=20)
    for index, some in enumerate(got):
        for one in some:
            torch.testing.assert_close(one, alone[index], rtol=0, atol=1e-11)


@pytest.mark.parametrize("arm", ["soft:length=3", "infix:length=3"])
def test_threads_generate_with_a_context_what_each_does_alone(arm: str) -> None:
    model = tiny.make("llama")
    texts = [tiny.ids(2, 4, seed=1), tiny.ids(2, 9, seed=2)]

    def call(text: Tensor, use_cache: bool) -> Tensor:
        found: Tensor = model.generate(input_ids=text, max_new_tokens=5, do_sample=False, use_cache=use_cache)
        return found

    with ts.attach(model, *tiny.away(model, arm, 1, by=1.0)):
        calls = [lambda: call(texts[0], True), lambda: call(texts[1], False)]
        alone = [one() for one in calls]
        got = at_once(*calls, times=4)
    assert all(torch.equal(one, alone[index]) for index, some in enumerate(got) for one in some)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_a_call_with_a_context_that_is_cut_short_keeps_nobody_waiting(kind: type[BaseException]) -> None:
    model, text = tiny.make("llama"), tiny.ids(1)

    def cut(*_: object) -> None:
        raise kind

    with ts.attach(model, *tiny.away(model, "soft:length=3", 1)):
        want = model(input_ids=text).logits
        handle = model.model.layers[0].register_forward_pre_hook(cut)
        with pytest.raises(kind):
            model(input_ids=text)
        handle.remove()
        found: list[Tensor] = []
        assert not elsewhere(lambda: found.append(model(input_ids=text).logits))
        torch.testing.assert_close(found[0], want, rtol=0, atol=1e-11)
        torch.testing.assert_close(model(input_ids=text).logits, want, rtol=0, atol=1e-11)


def test_a_call_that_takes_long_is_waited_for() -> None:
    model, text = tiny.make("llama"), tiny.ids(1)
    inside, go_on, order = threading.Event(), threading.Event(), list[str]()

    def hold(*_: object) -> None:
        if not inside.is_set():
            inside.set()
            go_on.wait(60)
            order.append("first")

    def second() -> None:
        model(input_ids=text)
        order.append("second")

    with ts.attach(model, *tiny.away(model, "soft:length=3", 1)):
        model.model.layers[0].register_forward_pre_hook(hold)
        threads = [threading.Thread(target=lambda: model(input_ids=text), daemon=True)]
        threads[0].start()
        assert inside.wait(60)
        threads.append(threading.Thread(target=second, daemon=True))
        threads[1].start()
        threads[1].join(3 * single.LOOK)
        assert threads[1].is_alive() and not order
        go_on.set()
        for thread in threads:
            thread.join(60)
    assert order == ["first", "second"]


def test_a_call_within_a_call_is_of_its_turn() -> None:
    model, text = tiny.make("llama"), tiny.ids(1)
    order, inside, nested = list[str](), threading.Event(), [False]

    def call_again(*_: object) -> None:
        if not nested[0]:
            nested[0] = True
            inside.set()
            model(input_ids=text)
            threading.Event().wait(0.2)  # long enough for another to get in
            order.append("within")

    def second() -> None:
        inside.wait(60)
        model(input_ids=text)
        order.append("second")

    with torch.no_grad(), ts.attach(model, *tiny.away(model, "soft:length=3", 1)):
        model.model.layers[0].register_forward_pre_hook(call_again)
        thread = threading.Thread(target=second, daemon=True)
        thread.start()
        model(input_ids=text)
        thread.join(60)
    assert order == ["within", "second"]


IDS = tiny.ids(2, 6)


def answer(model: Any, **more: Any) -> Tensor:
    found: Tensor = model(input_ids=IDS, **more).logits
    return found


def held_in(model: Any, layer: Any) -> tuple[threading.Event, threading.Event, Any]:
    """A call of the model stops in a layer until the second event; the first says that it is there."""
    there, go_on = threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        there.set()
        assert go_on.wait(60)

    return there, go_on, layer.register_forward_pre_hook(stop)


def begun(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        with torch.no_grad():
            found.append(call())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("arm", ["bias", "full", "lora:rank=2", "prefix:length=2+bias"])
def test_a_call_without_gradients_amid_one_that_trains_takes_no_gradient_away(arm: str, mode: Any) -> None:
    def gradients(disturbed: bool) -> list[Tensor]:
        model, others = tiny.make("gpt2"), []
        with tiny.Float64(), ts.attach(model, *tiny.away(model, arm, 0)) as tuned:
            tuned.train()

            def meanwhile(*_: object) -> None:
                if disturbed and torch.is_grad_enabled():
                    others.append(begun(mode()(lambda: model(input_ids=IDS[:, :4])))[0])
                    others[-1].join(0.5)  # a context makes it wait

            handle = model.transformer.h[1].register_forward_pre_hook(meanwhile, prepend=True)
            loss = model(input_ids=IDS).logits.square().sum()
            handle.remove()
            for thread in others:
                thread.join(60)
            return list(torch.autograd.grad(loss, tuned.parameters(), materialize_grads=True, allow_unused=True))

    alone = gradients(False)
    assert max(one.abs().max() for one in alone) > 1e-3
    torch.testing.assert_close(gradients(True), alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("arm", ["lora:rank=2", "full", "prefix:length=2", "soft:length=2", "bank"])
def test_nothing_is_attached_or_detached_amid_a_call_of_another_thread(arm: str) -> None:
    model = tiny.make("gpt2")
    made = list(tiny.away(model, "lora:rank=2" if arm == "bank" else arm, 0))
    given = [ts.Bank({"a": made})] if arm == "bank" else made
    rows = {"rows": ["a"] * len(IDS)} if arm == "bank" else {}
    with tiny.Float64(), torch.no_grad():
        bare = answer(model)
        there, go_on, handle = held_in(model, model.transformer.h[1])
        thread, found = begun(lambda: answer(model))
        assert there.wait(60)
        with pytest.raises(ts.UserError, match=r"^attach\(\): another thread is in a call of this model"):
            ts.attach(model, *given)
        go_on.set()
        thread.join(60)
        handle.remove()
        torch.testing.assert_close(found[0], bare, rtol=0, atol=0)
        torch.testing.assert_close(answer(model), bare, rtol=0, atol=0)

        tuned = ts.attach(model, *given)
        full = answer(model, **rows)
        there, go_on, handle = held_in(model, model.transformer.h[1])
        thread, found = begun(lambda: answer(model, **rows))
        assert there.wait(60)
        leaving, _ = begun(tuned.detach)
        leaving.join(0.3)
        assert leaving.is_alive() and not found  # it waits
        refused = elsewhere(lambda: answer(model, **rows))
        go_on.set()
        for one in (thread, leaving):
            one.join(60)
        handle.remove()
        assert (full - bare).abs().max() > 1e-3
        torch.testing.assert_close(found[0], full, rtol=0, atol=0)
        (fault,) = refused
        assert isinstance(fault, ts.UserError) and "attaching something to this model or detaching it" in str(fault)
        torch.testing.assert_close(answer(model), bare, rtol=0, atol=0)
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


def test_a_detach_waits_for_the_whole_of_a_generate() -> None:
    model = tiny.make("gpt2")
    asked = {"input_ids": IDS, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        tuned = ts.attach(model, *tiny.away(model, "lora:rank=2", 0))
        want = model.generate(**asked)
        there, go_on, handle = held_in(model, model.transformer.h[1])
        thread, found = begun(lambda: model.generate(**asked))
        assert there.wait(60)
        leaving, _ = begun(tuned.detach)
        go_on.set()
        for one in (thread, leaving):
            one.join(60)
        handle.remove()
    torch.testing.assert_close(found[0], want, rtol=0, atol=0)


@pytest.mark.parametrize("rows", [torch.tensor([0, 1]), 3, {"a": 1}, [], "a"], ids=str)
def test_rows_that_are_no_list_of_names_are_refused(rows: Any) -> None:
    model = tiny.make("gpt2")
    with (
        ts.attach(model, ts.Bank({"a": ts.LoRA(rank=2)})),
        pytest.raises(ts.UserError, match=r"^rows=.*: give a list with a name, or None, for each row of the batch\.$"),
    ):
        model(input_ids=IDS, rows=rows)


def test_paused_waits_for_calls_and_is_not_left_amid_one() -> None:
    model = tiny.make("gpt2")
    with tiny.Float64(), torch.no_grad():
        bare = answer(model)
        tuned = ts.attach(model, *tiny.away(model, "lora:rank=2", 0))
        full = answer(model)
        there, go_on, handle = held_in(model, model.transformer.h[1])
        thread, found = begun(lambda: answer(model))
        assert there.wait(60)
        threading.Timer(0.3, go_on.set).start()
        with tuned.paused():
            thread.join(60)
            handle.remove()
            torch.testing.assert_close(found[0], full, rtol=0, atol=0)
            torch.testing.assert_close(answer(model), bare, rtol=0, atol=0)
        torch.testing.assert_close(answer(model), full, rtol=0, atol=0)

        block = tuned.paused()
        block.__enter__()
        there, go_on, handle = held_in(model, model.transformer.h[1])
        thread, found = begun(lambda: answer(model))
        assert there.wait(60)
        with pytest.raises(ts.UserError, match="another thread is in a call of this model"):
            block.__exit__(None, None, None)
        go_on.set()
        thread.join(60)
        handle.remove()
        torch.testing.assert_close(found[0], bare, rtol=0, atol=0)
        torch.testing.assert_close(answer(model), bare, rtol=0, atol=0)


def test_a_bank_that_is_detached_within_its_own_call_leaves_nothing_behind() -> None:
    model = tiny.make("gpt2")
    with tiny.Float64(), torch.no_grad():
        bare = answer(model)
        made = [*tiny.away(model, "soft:length=2", 0), *tiny.away(model, "lora:rank=2", 0)]
        tuned = ts.attach(model, ts.Bank({"a": made}))
        handle = model.transformer.h[-1].register_forward_hook(lambda *_: tuned.detach())  # as the prompt is run
        with pytest.raises(ts.UserError, match=r"^a call: this was detached"):
            answer(model, rows=["a", "a"])
        handle.remove()
        torch.testing.assert_close(answer(model), bare, rtol=0, atol=0)
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


def test_a_call_that_waits_for_its_turn_until_turns_end_is_refused_and_keeps_nobody_waiting() -> None:
    turns, module = Turns(), torch.nn.Linear(2, 2)
    with turns.taken([module]), turns.lock:
        faults: list[list[BaseException]] = []
        waits = threading.Thread(target=lambda: faults.append(elsewhere(lambda: module(torch.ones(1, 2)))), daemon=True)
        waits.start()
        waits.join(0.3)
        assert waits.is_alive()
        turns.lock.acquire()  # held until the turns have ended
    turns.lock.release()
    waits.join(60)
    ((fault,),) = faults
    assert isinstance(fault, ts.UserError) and "was detached while this call waited for its turn" in str(fault)
    assert turns.lock.acquire(timeout=10)
