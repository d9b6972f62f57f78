"""Our attention function against torch's kernel and a written-out eager attention."""

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.integrations.sdpa_attention import use_gqa_in_sdpa

import tunescope as ts
from tunescope.attachment.attention import function as ours
from tunescope.attachment.attention.context import Extra, Told
from tunescope.attachment.attention.function import (
    SHORT,
    LayerState,
    _is_slow_to_train,
    _takes_groups,
    attention,
    mask_function,
)
from tunescope.attachment.attention.reach import quick_to_train, switched

B, HEADS, KV, T, D, DV = 2, 6, 3, 7, 5, 11  # rows, heads, key heads, text, key width, value width


def inputs(queries: int = T, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    shapes = ((B, HEADS, queries, D), (B, KV, T, D), (B, KV, T, DV))
    return tuple(torch.randn(shape, generator=g, dtype=torch.float64).to(dtype) for shape in shapes)  # type: ignore[return-value]


def extra(n: int, seed: int = 1, **fields: Any) -> Extra:
    g = torch.Generator().manual_seed(seed)
    key, value = (torch.randn(KV, n, d, generator=g, dtype=torch.float64) for d in (D, DV))
    return Extra(key, value, **fields)


def module(*extras: Extra, is_causal: bool = False, keep: Any = None) -> nn.Module:
    made = nn.Module()
    made.is_causal = is_causal
    made.__dict__[ours.STATE] = LayerState(extras, keep)
    return made


def causal(queries: int = T, keys: int = T) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)[None, None].expand(B, 1, -1, -1)


def padded() -> Tensor:
    """Causal, and the first two keys of the second row are padding: its first queries see nothing."""
    mask = causal().clone()
    mask[1, :, :, :2] = False
    return mask


def by_head() -> Tensor:
    """Causal, and every head leaves out keys of its own, but never a query's own."""
    g = torch.Generator().manual_seed(2)
    return causal() & ((torch.rand(B, HEADS, T, T, generator=g) < 0.6) | torch.eye(T, dtype=torch.bool))


def oracle(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, extras: tuple[Extra, ...], *, context_seen: Any = True
) -> Tensor:
    """Torch's kernel over [contexts | text], heads repeated, mask widened by hand."""
    n = sum(e.key.shape[1] for e in extras)
    k = torch.cat([*(e.key.to(k.dtype).expand(B, -1, -1, -1) for e in extras), k], 2).repeat_interleave(HEADS // KV, 1)
    v = torch.cat([*(e.value.to(v.dtype).expand(B, -1, -1, -1) for e in extras), v], 2).repeat_interleave(
        HEADS // KV, 1
    )
    mask = None
    if seen is not None or context_seen is not True:
        seen = torch.ones(B, 1, q.shape[2], k.shape[2] - n, dtype=torch.bool) if seen is None else seen
        left = torch.ones(B, seen.shape[1], q.shape[2], n, dtype=torch.bool) & torch.as_tensor(context_seen)
        mask = torch.cat([left, seen], -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def close(got: Tensor, expected: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


@pytest.fixture(params=["scores joined", "keys joined"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ours, "FEW", 0 if request.param == "keys joined" else 1000)
    return request.param


@pytest.mark.parametrize("n", [(), (1,), (4,), (2, 3)])
@pytest.mark.parametrize("seen", [None, causal(), padded(), by_head()], ids=["all", "causal", "padded", "by head"])
@pytest.mark.parametrize("is_float", [False, True])
def test_it_is_torch_s_attention_over_contexts_and_text(n: Any, seen: Any, is_float: bool, form: str) -> None:
    extras = tuple(extra(m, seed=m) for m in n)
    q, k, v = inputs()
    mask = seen
    if is_float and seen is not None:
        mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, torch.finfo(torch.float64).min)
    got, _ = attention(module(*extras), q, k, v, mask)
    assert got.shape == (B, T, HEADS, DV)
    expected = oracle(q, k, v, seen, extras)
    sighted = torch.ones(B, T, dtype=torch.bool) if seen is None or extras else seen.any(-1)[:, 0]
    close(got[sighted], expected[sighted])
    assert got.isfinite().all()


def test_the_two_forms_agree_with_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = (extra(2, at=torch.arange(2)), extra(3, seed=5), extra(2, seed=6, infix=True))
    q, k, v = inputs()
    kwargs = {
        "sliding_window": 4,
        "position_ids": torch.arange(2, 2 + T)[None].expand(B, -1),
        "position_bias": torch.randn(1, HEADS, T, T, dtype=torch.float64),
        "output_start": torch.tensor([3, 5]),
    }
    mask = torch.zeros(padded().shape, dtype=torch.float64).masked_fill(~padded(), torch.finfo(torch.float64).min)
    for left_out in ("", "position_bias"):
        given = {name: value for name, value in kwargs.items() if name != left_out}
        for m in (padded(), mask):
            with monkeypatch.context() as patch:
                patch.setattr(ours, "FEW", 1000)
                whole, _ = attention(module(*extras), q, k, v, m, **given)
                patch.setattr(ours, "FEW", 0)
                other, _ = attention(module(*extras), q, k, v, m, **given)
            close(other, whole)


@pytest.mark.parametrize("queries", [1, 3])
def test_queries_of_a_later_step_see_all_that_stands_before(queries: int, form: str) -> None:
    extras = (extra(3), extra(2, seed=3, infix=True))
    q, k, v = inputs(queries)
    layer = module(*extras)
    layer.__dict__[ours.STATE].told = Told(queries, T - queries)
    got, _ = attention(layer, q, k, v, causal(queries))
    close(got, oracle(q, k, v, causal(queries), extras))
    layer.__dict__[ours.STATE].told = Told(
        queries, T - queries, T - 1
    )  # as `generate` tells it: a prompt filled in parts
    got, _ = attention(layer, q, k, v, causal(queries))
    seen = torch.ones(1, 1, queries, 5, dtype=torch.bool)
    seen[..., :-1, 3:] = False
    close(got, oracle(q, k, v, causal(queries), extras, context_seen=seen))


def test_an_infix_is_seen_from_its_row_s_start_on(form: str) -> None:
    q, k, v = inputs()
    (only,) = extras = (extra(3, infix=True),)
    for start, firsts in ((torch.tensor([2, 5]), (2, 5)), (None, (T - 1, T - 1))):
        seen = torch.arange(T)[None, :] >= torch.tensor(firsts)[:, None]
        got, _ = attention(module(only), q, k, v, causal(), output_start=start)
        close(got, oracle(q, k, v, causal(), extras, context_seen=seen[:, None, :, None]))


def test_a_window_hides_keys_at_positions_and_not_free_ones(form: str) -> None:
    q, k, v = inputs()
    standing, free = extra(3, at=torch.arange(1, 4)), extra(2, seed=3)
    positions = torch.arange(4, 4 + T)[None].expand(B, -1)
    got, _ = attention(module(standing, free), q, k, v, causal(), sliding_window=5, position_ids=positions)
    near = positions[:, None, :, None] - torch.arange(1, 4) < 5
    assert near.any()
    assert not near.all()
    seen = torch.cat([near, torch.ones(B, 1, T, 2, dtype=torch.bool)], -1)
    close(got, oracle(q, k, v, causal(), (standing, free), context_seen=seen))
    with pytest.raises(ts.UserError, match="under a sliding window needs position_ids, which this family hides"):
        attention(module(standing), q, k, v, causal(), sliding_window=5)


def test_a_window_is_counted_from_the_last_positions_where_a_layer_cuts_the_queries_before(form: str) -> None:
    q, k, v = inputs(3)
    standing = extra(3, at=torch.arange(1, 4))
    positions = torch.arange(4, 4 + T)[None].expand(B, -1)
    got, _ = attention(module(standing), q, k, v, causal(3), sliding_window=7, position_ids=positions)
    near = positions[:, None, -3:, None] - torch.arange(1, 4) < 7
    close(got, oracle(q, k, v, causal(3), (standing,), context_seen=near))


@pytest.mark.parametrize("is_float", [False, True])
def test_keys_that_a_layer_did_not_choose_are_hidden_beside_those_of_the_mask(is_float: bool, form: str) -> None:
    q, k, v = inputs()
    chosen = torch.stack([torch.zeros(T), torch.arange(T), torch.full((T,), T - 1)], -1)  # the last is hidden by both
    only = torch.zeros(T, T, dtype=torch.bool).scatter(-1, chosen.long(), True) & causal()
    mask = torch.zeros(causal().shape, dtype=torch.float64).masked_fill(~causal(), torch.finfo(torch.float64).min)
    given = {"indices": chosen[None].expand(B, -1, -1)}
    got, _ = attention(module(extra(2)), q, k, v, mask if is_float else causal(), **given)
    close(got, oracle(q, k, v, only, (extra(2),)))


def test_softcap_position_bias_and_scaling_are_those_given(form: str) -> None:
    q, k, v = inputs()
    only = extra(2)
    bias = torch.randn(1, HEADS, T, T, dtype=torch.float64)
    keys, values = (torch.cat([getattr(only, n).expand(B, -1, -1, -1), t], 2) for n, t in (("key", k), ("value", v)))
    scores = 0.3 * q @ keys.repeat_interleave(2, 1).mT
    for softcap, more in ((2.0, None), (None, bias), (2.0, bias)):
        whole = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        whole = whole if more is None else whole + F.pad(more, (2, 0))
        whole = whole.masked_fill(~F.pad(causal(), (2, 0), value=True), -torch.inf)
        expected = (whole.softmax(-1) @ values.repeat_interleave(2, 1)).transpose(1, 2)
        given = {"softcap": softcap, "position_bias": more, "scaling": 0.3}
        got, _ = attention(module(only), q, k, v, causal(), **given)
        close(got, expected)
        float_mask = torch.zeros(B, 1, T, T, dtype=torch.float64).masked_fill(~causal(), -1e300)
        close(attention(module(only), q, k, v, float_mask, **given)[0], expected)


@pytest.mark.parametrize("n", [0, 3])
def test_rows_that_see_nothing_are_finite_and_leave_finite_gradients(n: int, form: str) -> None:
    q, k, v = (t.requires_grad_() for t in inputs())
    mask = causal().clone()
    mask[1] = False
    extras = (extra(n),) if n else ()
    got, _ = attention(module(*extras), q, k, v, mask)
    got.sum().backward()
    assert got.isfinite().all()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_bfloat16_is_close_to_float32(form: str) -> None:
    q, k, v = inputs(dtype=torch.bfloat16)
    extras = (extra(4),)
    got, _ = attention(module(*extras), q, k, v, causal())
    assert got.dtype == torch.bfloat16
    exact, _ = attention(module(*extras), q.float(), k.float(), v.float(), causal())
    close(got.float(), exact, atol=0.03)


def test_dropout_acts_on_the_weights_alone() -> None:
    q, _, _ = inputs()
    torch.manual_seed(0)
    wide = torch.ones(B, KV, 4000, D, dtype=torch.float64), torch.ones(B, KV, 4000, DV, dtype=torch.float64)
    got, _ = attention(module(extra(1)), q, *wide, None, dropout=0.3, output_attentions=True)
    assert float(got.mean()) == pytest.approx(1, abs=0.02)
    assert got.std() > 1e-3


def test_weights_sum_to_one_with_the_contexts_first() -> None:
    kept: list[dict[str, Tensor]] = []
    q, k, v = inputs()
    extras = (extra(2), extra(3, seed=4))
    state = module(*extras, keep=lambda module, seen: kept.append(seen))
    out, weights = attention(state, q, k, v, causal())
    assert weights.shape == (B, HEADS, T, 5 + T)
    close(weights.sum(-1), torch.ones(B, HEADS, T, dtype=torch.float64))
    values = torch.cat([*(e.value.expand(B, -1, -1, -1) for e in extras), v], 2).repeat_interleave(2, 1)
    close((weights @ values).transpose(1, 2), out)
    assert torch.equal(kept[0]["weights"], weights)
    assert torch.equal(kept[0]["output"].transpose(1, 2), out)
    assert (weights[..., 5:].masked_select(~causal().expand(B, HEADS, -1, -1)) == 0).all()


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "t5", "bart", "bert"])
def test_output_attentions_are_those_of_eager_and_gain_the_context_s_columns(family: str) -> None:
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    given = tiny.batch(model, "none")
    with torch.no_grad(), tiny.Float64():
        plain = eager(**given, output_attentions=True)
        with ts.attach(model, ts.Prefix(length=3)):
            got = model(**given, output_attentions=True)
    for kind in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
        if plain.get(kind):
            assert len(got[kind]) == len(plain[kind]) == 2
            for with_prefix, without in zip(got[kind], plain[kind], strict=True):
                assert with_prefix.shape[-1] == without.shape[-1] + 3
                close(with_prefix.sum(-1), torch.ones_like(with_prefix[..., 0]))
            first = got[kind][0][..., 3:]
            if (
                kind != "cross_attentions" and kind != "decoder_attentions"
            ):  # the first layer has the same queries and keys
                close(first / first.sum(-1, keepdim=True), plain[kind][0])


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("in_bank", [False, True])
def test_an_encoder_s_attentions_behind_a_soft_prompt_are_of_the_text_over_prompt_and_text(
    family: str, in_bank: bool
) -> None:
    """The oracle: transformers' eager attention on each row's own embeddings, prompt and text, without padding."""
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    (soft,) = tiny.away(model, "soft:length=3", 0)
    front, ids = soft.tensors["embeddings"], torch.arange(5, 15).view(2, 5)
    for mask in (
        torch.tensor([[1] * 5] * 2),
        torch.tensor([[0, 0, 1, 1, 1], [1] * 5]),
        torch.tensor([[1] * 4 + [0]] * 2),
    ):
        given = {"input_ids": ids, "attention_mask": mask, "output_attentions": True, "output_hidden_states": True}
        with torch.no_grad(), tiny.Float64(), ts.attach(model, ts.Bank({"it": soft}) if in_bank else soft):
            got = model(**given, **({"rows": ["it", "it"]} if in_bank else {}))
        base = getattr(got, "hidden_states", None)
        assert base is not None and base[-1].shape[1] == 5
        for row, real in enumerate(mask.bool()):
            whole = torch.cat([front, eager.get_input_embeddings()(ids[row, real])])[None]
            with torch.no_grad(), tiny.Float64():
                alone = eager(inputs_embeds=whole, output_attentions=True).attentions
            columns = torch.cat([torch.ones(3, dtype=torch.bool), real])
            for weights, wanted in zip(got.attentions, alone, strict=True):
                assert weights.shape == (2, weights.shape[1], 5, 8)
                close(weights[row][:, real][..., columns], wanted[0][:, 3:])
                assert (weights[row][:, real][..., ~columns] == 0).all()


@pytest.mark.parametrize("specs", ["prefix:length=2 soft:length=3", "soft:length=3 prefix:length=2"])
def test_an_encoder_s_attentions_behind_a_soft_prompt_have_a_prefix_s_columns_first(specs: str) -> None:
    """The oracle: each row without padding, and a prefix whose keys are zero, to which all look alike."""
    model = tiny.make("bert")
    given = [tiny.away(model, spec, seed)[0] for seed, spec in enumerate(specs.split())]
    for name, value in given[specs.startswith("soft")].tensors.items():
        if name.endswith(".key"):  # so that every query sees both columns alike
            value.data.zero_()
    ids, mask = torch.arange(5, 15).view(2, 5), torch.tensor([[0, 0, 1, 1, 1], [1] * 5])
    with torch.no_grad(), tiny.Float64(), ts.attach(model, *given):
        got = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
        for row, real in enumerate(mask.bool()):
            alone = model(input_ids=ids[row : row + 1, real], output_attentions=True).attentions
            columns = torch.cat([torch.ones(5, dtype=torch.bool), real])
            for weights, wanted in zip(got, alone, strict=True):
                assert weights.shape == (2, weights.shape[1], 5, 10)
                close(weights[..., 0], weights[..., 1])
                assert (weights[..., 1] != weights[..., 2]).all()
                assert wanted.shape[2:] == (int(real.sum()), 5 + int(real.sum()))
                close(weights[row][:, real][..., columns], wanted[0])
                assert (weights[row][:, real][..., ~columns] == 0).all()


def test_causal_attention_without_a_mask_is_an_error_and_never_a_guess() -> None:
    q, k, v = inputs()
    with pytest.raises(RuntimeError, match="asked for causal attention and gave no mask"):
        attention(module(is_causal=True), q, k, v, None)
    attention(module(is_causal=True), q, k, v, None, is_causal=False)
    attention(module(is_causal=True), q[:, :, :1], k, v, None)


def test_the_mask_is_never_left_out_where_it_is_causal() -> None:
    def causal_rule(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return key <= query

    settings = {"batch_size": 2, "q_length": 4, "kv_length": 4, "mask_function": causal_rule, "device": "cpu"}
    made = mask_function(**settings, allow_is_causal_skip=True)
    assert torch.equal(made[0, 0], torch.ones(4, 4, dtype=torch.bool).tril())


def test_state_rides_on_the_module_and_a_bare_one_is_plain_attention() -> None:
    q, k, v = inputs()
    got, weights = attention(SimpleNamespace(is_causal=False), q, k, v, causal())  # type: ignore[arg-type]
    close(got, oracle(q, k, v, causal(), ()))
    assert weights is None


@pytest.mark.parametrize("queries", [1, T])
@pytest.mark.parametrize("n", [(), (3,)])
@pytest.mark.parametrize("by_heads", [False, True])
def test_where_the_kernel_takes_no_groups_it_is_given_none_and_the_numbers_are_the_same(
    queries: int, n: Any, by_heads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    grouped, kernel = [], F.scaled_dot_product_attention
    monkeypatch.setattr(ours, "FEW", 0)
    monkeypatch.setattr(ours, "_takes_groups", lambda *_: False)
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda *args, enable_gqa, **given: grouped.append(enable_gqa) or kernel(*args, **given),
    )
    (q, _, _), (_, k, v) = inputs(queries), inputs()
    seen = (by_head() if by_heads else padded())[:, :, -queries:]
    extras = tuple(extra(m) for m in n)
    got, _ = attention(module(*extras), q, k, v, seen)
    assert grouped == [False]
    monkeypatch.undo()
    sighted = torch.ones(B, queries, dtype=torch.bool) if extras else seen.any(-1)[:, 0]
    close(got[sighted], oracle(q, k, v, seen, extras)[sighted])


def test_on_a_gpu_the_kernel_takes_groups_where_transformers_gives_it_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANSFORMERS_SDPA_FORCE_GQA", raising=False)
    for other in ("mps", "xpu"):  # it asks what there is, and not where the keys are
        monkeypatch.setattr(f"transformers.integrations.sdpa_attention._is_torch_{other}_available", False)
    for device in ("cuda", "cpu"):
        with FakeTensorMode():
            query, mask = torch.ones(1, 4, 3, 8, device=device), torch.ones(1, 1, 3, 3, dtype=torch.bool, device=device)
            keys = [torch.ones(1, 2, 3, width, device=device) for width in (8, 4, 512)]
        for seen in (None, mask):
            for key, value in ((keys[0], keys[0]), (keys[0], keys[1]), (keys[2], keys[2])):
                expected = device == "cpu" or use_gqa_in_sdpa(seen, key, value)
                assert _takes_groups(query, key, value, seen) == expected


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_what_is_quick_to_train_in_bfloat16_gives_the_gradients_of_the_kernel(family: str) -> None:
    """Short rows are computed by plain products on a CPU: as near to float32's gradients as the kernel's are."""
    model = tiny.make(family, dtype=torch.float32)
    given = tiny.batch(model, "right")

    def gradients(quick: bool, half: bool = True) -> tuple[torch.Tensor, bool]:
        with ts.attach(model, ts.LoRA(rank=2), seed=1) as tuned:
            for name, value in tuned.named_parameters().items():
                value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(len(name))))
            tuned.train()
            with (
                quick_to_train(model, "bfloat16") if quick else nullcontext(),
                torch.autocast("cpu", torch.bfloat16, enabled=half),
            ):
                out = model(**given)[0]
            out.float().pow(2).mean().backward()
            return torch.cat([value.grad.flatten() for value in tuned.parameters()]), "ScaledDotProduct" in _graph(out)

    before = model.config._attn_implementation
    (exact, _), (kernel, by_kernel), (plain, not_by_it) = gradients(False, False), gradients(False), gradients(True)
    assert by_kernel and not not_by_it and model.config._attn_implementation == before
    assert 0 < (plain - exact).norm() < 1.5 * (kernel - exact).norm() < 0.2 * exact.norm()


def test_long_rows_float32_and_what_does_not_train_stay_with_the_kernel() -> None:
    query, key = (torch.zeros(1, 1, 200, 4, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    short = query[:, :, :SHORT].detach().requires_grad_()
    assert _is_slow_to_train(short, short)
    assert not _is_slow_to_train(query, key)
    assert not _is_slow_to_train(short.detach(), short)
    assert not _is_slow_to_train(short.detach().float().requires_grad_(), short)
    with torch.no_grad():
        assert not _is_slow_to_train(short, short)
    with torch.autocast("cpu", torch.bfloat16):
        assert _is_slow_to_train(short.detach().float().requires_grad_(), short)


def _graph(out: torch.Tensor) -> str:
    """The names of all that `out` was made by."""
    seen, waiting = set(), [out.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [one for one, _ in node.next_functions]
    return " ".join(node.name() for node in seen)


def test_where_transformers_cannot_switch_it_is_silent_and_others_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    log, heard = logging.getLogger("transformers.modeling_utils"), logging.Handler()
    said: list[str] = []
    heard.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    model = tiny.make("gpt2")
    monkeypatch.setattr(type(model), "_can_set_attn_implementation", classmethod(lambda cls: False))
    log.addHandler(heard)
    try:
        with switched(model):
            log.warning("within")
        log.warning("behind")
    finally:
        log.removeHandler(heard)
    assert said == ["within", "behind"]
