"""What would give wrong numbers, or train nothing, without a word: sinks, hybrids, interrupts, stale keys."""

import json
import sys
import threading
from contextlib import nullcontext

import manifests
import peft
import pytest
import tiny
import torch
import transformers as tf
from torch import nn
from zoo import zoo

import tunescope as ts
from tunescope.attachment.guards.mamba_kernels import unfused
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.text import Text
from tunescope.models.anatomy import kind
from tunescope.models.fingerprint import fingerprint

IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])
FRONT = [3, 4, 17, 18]
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}


def text(ids=FRONT):
    return Artifact(Text(text="x"), {"ids": torch.tensor(ids)})


def large(model):
    """Weights at which contexts and sinks show."""
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:
                value.mul_(4)
            elif not value.any():
                value.normal_(std=0.3)
    return model.eval()


def gpt_oss():
    config = tf.GptOssConfig(**SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=64)
    return large(tf.GptOssForCausalLM(config))


def lfm2():
    return large(tf.Lfm2ForCausalLM(tf.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"])))


@torch.no_grad()
def test_attention_sinks_stay_in_the_softmax():
    model = gpt_oss()
    whole = model(torch.cat([torch.tensor([FRONT] * 2), IDS], 1)).logits[:, len(FRONT) :]
    bare = model(IDS).logits
    with ts.attach(model, text()):
        torch.testing.assert_close(model(IDS).logits, whole, rtol=0, atol=1e-5)
    with ts.attach(model, ts.Bank({"a": ts.Prefix(length=2)})):
        torch.testing.assert_close(model(IDS, rows=[None, None]).logits, bare, rtol=0, atol=1e-5)
    assert (whole - bare).abs().max() > 0.1


def test_a_family_that_comes_out_otherwise_is_refused(monkeypatch):
    from tunescope.attachment.attention import function

    monkeypatch.setattr(function, "_column", lambda sink, scores: scores.new_full((*scores.shape[:-1], 1), -1e9))
    with pytest.raises(ts.UserError, match="Family 'gpt_oss' gives its attention something that tunescope does not"):
        ts.attach(gpt_oss(), ts.Prefix(length=2))


@pytest.mark.parametrize("trained", [True, False])
def test_text_in_front_of_layers_without_keys_is_refused_and_a_prefix_is_not(trained):
    torch.manual_seed(0)
    model = lfm2() if trained else tf.Lfm2ForCausalLM(tf.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]))
    for context in (text(), ts.Soft(length=2)):
        with pytest.raises(ts.UserError, match=r"in family 'lfm2' text put in front .* do not see it .* Use a prefix"):
            ts.attach(model, context)
    with pytest.raises(ts.UserError, match="do not see it there"), ts.attach(model, ts.Bank({"a": text()})):
        model(IDS, rows=["a", None])
    with ts.attach(model, ts.Prefix(length=2)) as tuned:
        assert not torch.equal(tuned.model(IDS).logits, tf.Lfm2ForCausalLM.forward(model, IDS[:, :1]).logits)


def cut_short(model, **given):
    """A call that Ctrl-C ends in the second layer."""

    def stop(*_):
        raise KeyboardInterrupt

    handle = model.transformer.h[1].register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        model(IDS, **given)
    handle.remove()


def test_after_an_interrupt_what_is_tuned_still_trains():
    model = tiny.make("gpt2", dtype=torch.float32)
    with ts.attach(model, ts.Bias()) as tuned:
        optimizer = torch.optim.Adam(tuned.train().parameters(), lr=0.1)
        before = model(IDS).logits
        cut_short(model)
        with torch.no_grad():
            for value in tuned.parameters():
                value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))
        assert not torch.equal(model(IDS).logits, before)  # of the first call after it
        losses = []
        for _ in range(3):
            losses.append(model(IDS, labels=IDS).loss)
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
        assert losses[2] < losses[1] < losses[0]


def test_after_an_interrupt_a_bank_asks_for_rows_again():
    model = tiny.make("gpt2", dtype=torch.float32)
    with ts.attach(model, ts.Bank({"a": ts.Prefix(length=2)})) as banked, torch.no_grad():
        plain = model(IDS, rows=[None, None]).logits
        cut_short(model, rows=["a", "a"])
        with pytest.raises(ts.UserError, match="every call says what each row takes"):
            model(IDS)
        with banked.rows([None, None]):
            cut_short(model, rows=["a", "a"])
            assert torch.equal(model(IDS).logits, plain)
        with pytest.raises(ts.UserError, match="every call says what each row takes"):
            model(IDS)


@torch.no_grad()
@pytest.mark.parametrize("method", [ts.Soft(length=3), ts.Prefix(length=3), ts.Bias(), ts.LoRA(rank=2)], ids=str)
def test_a_write_through_data_is_seen_while_it_is_tuned(method):
    model = tiny.make("gpt2", dtype=torch.float32)
    with ts.attach(model, method) as tuned:
        before = model(IDS).logits
        for value in tuned.train().parameters():
            value.data.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))
        after = model(IDS).logits
        assert (after - before).abs().max() > 1e-3
        tuned.eval()
        assert torch.equal(model(IDS).logits, after)


@torch.no_grad()
@pytest.mark.parametrize("method", [ts.Bias(), ts.Full(only=("*ln*",)), ts.Full(), ts.LoRA(rank=2)], ids=str)
def test_a_write_through_data_is_seen_where_nothing_is_tuned(method):
    """torch's own `vector_to_parameters` writes so, and so do averages of weights."""
    model = tiny.make("gpt2")
    with ts.attach(model, method) as tuned:
        before = model(IDS).logits
        vector = nn.utils.parameters_to_vector(tuned.parameters())
        drawn = torch.randn(vector.shape, generator=torch.Generator().manual_seed(0), dtype=vector.dtype)
        nn.utils.vector_to_parameters(vector + 0.1 * drawn, tuned.parameters())
        written, artifacts = model(IDS).logits, tuned.artifacts
        for _ in range(2):
            assert torch.equal(model(IDS).logits, written)
    assert (written - before).abs().max() > 1e-3
    with ts.attach(model, *artifacts):
        torch.testing.assert_close(model(IDS).logits, written, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_full_tuning_learns_from_the_words_of_a_text_in_front(family):
    """The oracle is full tuning on the same words in the row, and finite differences of their embeddings."""
    model = tiny.make(family)
    decodes = {"decoder_input_ids": IDS} if family == "t5" else {}
    table = {"gpt2": "wte.weight", "llama": "embed_tokens.weight", "t5": "shared.weight"}[family]

    def loss(ids):
        with tiny.Float64():
            return model(input_ids=ids, **decodes).logits[:, -1].square().sum()

    with ts.attach(model, ts.Full()) as tuned:
        tuned.train()
        loss(torch.cat([torch.tensor([FRONT] * 2), IDS], 1)).backward()
        wanted = {name.partition(".")[2]: leaf.grad for name, leaf in tuned.named_parameters().items()}
    with ts.attach(model, text(), ts.Full()) as tuned:
        tuned.train()
        leaves = {name.partition(".")[2]: leaf for name, leaf in tuned.named_parameters().items()}
        loss(IDS).backward()
        with torch.no_grad():
            step, sides = 1e-5, []
            for change in (step, -2 * step):
                leaves[table][FRONT[0], 0] += change
                sides.append(loss(IDS))
    for name, leaf in leaves.items():
        torch.testing.assert_close(leaf.grad, wanted[name], rtol=0, atol=1e-10)
    slope = (sides[0] - sides[1]) / (2 * step)
    assert slope.abs() > 1e-3
    torch.testing.assert_close(leaves[table].grad[FRONT[0], 0], slope, rtol=1e-5, atol=1e-7)


@torch.no_grad()
@pytest.mark.parametrize("in_bank", [False, True])
def test_keys_made_under_autocast_stay_there(in_bank):
    model = tiny.make("llama", dtype=torch.float32)
    with ts.attach(model, ts.Bank({"a": text()}) if in_bank else text()):
        rows = {"rows": ["a", "a"]} if in_bank else {}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = model(IDS, **rows).logits
        first = model(IDS, **rows).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (made,) = ts.lower(model, text())
    with ts.attach(model, made):
        torch.testing.assert_close(model(IDS).logits, first, rtol=0, atol=1e-5)
    assert not torch.equal(half.float(), first)
    whole = model(torch.cat([torch.tensor([FRONT] * 2), IDS], 1)).logits[:, len(FRONT) :]
    torch.testing.assert_close(first, whole, rtol=0, atol=1e-5)


@torch.no_grad()
def test_text_is_read_anew_by_a_base_that_changed():
    model = tiny.make("llama", dtype=torch.float32)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, init_lora_weights=False))
    whole = torch.cat([torch.tensor([FRONT] * 2), IDS], 1)
    with_adapter = wrapped(whole).logits[:, len(FRONT) :]
    with wrapped.disable_adapter():
        without = wrapped(whole).logits[:, len(FRONT) :]
    with ts.attach(model, text()):
        for context, wanted in ((nullcontext(), with_adapter), (wrapped.disable_adapter(), without)):
            with context:
                torch.testing.assert_close(wrapped(IDS).logits, wanted, rtol=0, atol=1e-5)
        model.get_input_embeddings().weight.mul_(2.0)
        changed = wrapped(IDS).logits
    torch.testing.assert_close(changed, wrapped(whole).logits[:, len(FRONT) :], rtol=0, atol=1e-5)
    plain = tiny.make("llama", dtype=torch.float32)
    with ts.attach(plain, text()):
        plain(IDS)
        plain.get_input_embeddings().weight.mul_(2.0)
        changed = plain(IDS).logits
    torch.testing.assert_close(changed, plain(whole).logits[:, len(FRONT) :], rtol=0, atol=1e-5)
    with pytest.raises(ts.UserError, match=r"takes the model inside of peft's wrapper: attach\(model\.get_base_model"):
        ts.attach(wrapped, ts.Prefix(length=2))


@pytest.mark.parametrize("config", [peft.PromptTuningConfig, peft.PrefixTuningConfig, peft.PromptEncoderConfig])
def test_a_prompt_of_peft_is_not_lost_by_the_advice_for_its_wrapper(config):
    """peft is the oracle: its own base gives other logits than its wrapper."""
    wrapped = peft.get_peft_model(tiny.make("gpt2"), config(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
    with torch.no_grad():
        got, bare = wrapped(input_ids=IDS).logits[:, -1], wrapped.get_base_model()(input_ids=IDS).logits[:, -1]
    assert not torch.allclose(got, bare)
    with pytest.raises(
        ts.UserError, match=r"nothing of its P.*save_pretrained\(FOLDER\), then tunescope import FOLDER"
    ):
        ts.attach(wrapped, ts.LoRA(rank=2))


def test_a_wrapper_of_peft_whose_adapter_was_deleted_is_refused_in_one_line():
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    wrapped = peft.get_peft_model(tiny.make("gpt2"), config)
    wrapped.delete_adapter("default")
    with pytest.raises(ts.UserError, match=r"takes the model inside of peft's wrapper: attach\(model\.get_base_model"):
        ts.attach(wrapped, ts.LoRA(rank=2))


def test_the_fingerprint_sees_writes_that_count_no_version():
    model = tiny.make("llama", dtype=torch.float32)
    seen = [fingerprint(model)]
    model.model.layers[0].self_attn.k_proj.weight.data.add_(0.1)
    seen.append(fingerprint(model))
    other = {name: value + 0.1 for name, value in model.state_dict().items()}
    model.load_state_dict(other, assign=True)
    seen.append(fingerprint(model))
    assert len(set(seen)) == 3


@torch.no_grad()
def test_a_decoder_without_its_head_is_a_decoder():
    torch.manual_seed(0)
    model = tf.GemmaModel(tf.GemmaConfig(**SIZES | {"num_key_value_heads": 1}, head_dim=8)).eval()
    assert kind(model) == "decoder" and kind(tf.ElectraModel(tf.ElectraConfig(hidden_size=16))) == "encoder"
    whole = model(torch.cat([torch.tensor([FRONT] * 2), IDS], 1)).last_hidden_state[:, len(FRONT) :]
    with ts.attach(model, text()):
        first = model(IDS[:, :3], use_cache=True)
        rest = model(IDS[:, 3:], past_key_values=first.past_key_values).last_hidden_state
    torch.testing.assert_close(rest, whole[:, 3:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [ts.Soft(length=3), ts.Prefix(length=3), ts.Bias(), ts.LoRA(rank=2)], ids=str)
def test_within_inference_mode_it_is_as_without(method, tmp_path):
    model = tiny.make("gpt2", dtype=torch.float32)
    with ts.attach(model, method) as tuned, torch.no_grad():
        wanted = model(IDS).logits
        ts.save(tmp_path / "saved", tuned.artifacts, model=model)
    with torch.inference_mode():
        with ts.attach(model, method):
            assert torch.equal(model(IDS).logits, wanted)
        with ts.attach(model, *ts.load(tmp_path / "saved")):
            assert torch.equal(model(IDS).logits, wanted)
            model.generate(IDS, max_new_tokens=2, pad_token_id=0)


@torch.no_grad()
def test_an_adapter_behind_t5s_map_in_float32_where_the_rest_is_in_half():
    model = tiny.make("t5", dtype=torch.float16)
    for block in (*model.encoder.block, *model.decoder.block):
        block.layer[-1].DenseReluDense.wo.float()
    given = {"input_ids": IDS, "decoder_input_ids": IDS}
    with ts.attach(model, ts.Adapter(2)) as tuned:
        before = model(**given).logits
        for value in tuned.parameters():
            value.add_(0.1)
        changed = model(**given).logits - before
    whole = tiny.make("t5", dtype=torch.float32)
    whole.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    bare = whole(**given).logits
    with ts.attach(whole, *tuned.artifacts):
        wanted = whole(**given).logits - bare
    assert wanted.abs().max() > 0.05
    torch.testing.assert_close(changed.float(), wanted, rtol=0, atol=0.02)


@torch.no_grad()
def test_an_encoder_s_own_positions_move_behind_the_context_and_tuples_are_refused():
    model = tiny.make("bert", dtype=torch.float32)
    with ts.attach(model, ts.Soft(length=2)):
        plain = model(IDS).last_hidden_state
        told = model(IDS, position_ids=torch.arange(5)[None]).last_hidden_state
        assert torch.equal(plain, told)
        with pytest.raises(ts.UserError, match="leave return_dict=False out"):
            model(IDS, return_dict=False)


def test_names_of_a_compiled_model_are_those_of_the_model(tmp_path):
    model = tiny.make("llama", dtype=torch.float32)
    compiled = torch.compile(model, backend="eager")
    with ts.attach(compiled, ts.Full()) as tuned:
        ts.save(tmp_path / "saved", tuned.artifacts, model=compiled)
    with ts.attach(model, *ts.load(tmp_path / "saved")) as again:
        assert not [name for name in again.named_parameters() if "_orig_mod" in name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.pop("base"), "does not describe its folder"),
        (lambda told: told["base"].update(fingerprint=None), "does not describe its folder"),
        (lambda told: told["artifacts"][0]["fields"].update(rank="x"), "LoRA\\(rank='x'"),
        (lambda told: told["artifacts"][0]["fields"].update(sites=[1]), "LoRA\\(sites=\\(1,\\)\\)"),
        (
            lambda told: told["artifacts"][0]["fields"].update(alpha=float("nan")),
            "input should be a finite number",
        ),
    ],
)
def test_a_damaged_manifest_is_one_clear_line(tmp_path, change, message):
    model = tiny.make("llama", dtype=torch.float32)
    with ts.attach(model, ts.LoRA(rank=2)) as tuned:
        ts.save(tmp_path / "saved", tuned.artifacts, model=model)
    path = tmp_path / "saved" / "tunescope.json"
    told = json.loads(path.read_text())
    change(told)
    manifests.write(path.parent, told)
    with pytest.raises(ts.UserError, match=message):
        ts.load(tmp_path / "saved")


def test_manifests_that_are_no_json_and_banks_of_what_names_no_base(tmp_path):
    path = tmp_path / "saved" / "tunescope.json"
    path.parent.mkdir()
    path.write_text("[" * 100_000)
    with pytest.raises(ts.UserError, match="not readable as JSON"):
        ts.load(path.parent)
    path.write_text('{"format": 1}')
    with pytest.raises(ts.UserError, match=r"does not describe its folder \(base, or about\): it is damaged"):
        ts.Bank({"a": path.parent})
    path.unlink()
    path.mkdir()
    with pytest.raises(ts.UserError, match="is a folder, and no file"):
        ts.load(path.parent)


def test_what_was_detached_stays_so_after_a_pause():
    model = tiny.make("llama", dtype=torch.float32)
    tuned = ts.attach(model, ts.Prefix(length=2))
    tuned.detach()
    with tuned.paused():
        pass
    assert "Detached" in repr(tuned)
    ts.attach(model, ts.LoRA(rank=2)).detach()


@pytest.mark.parametrize(
    ("family", "kernel"),
    [
        ("mamba", "mamba.modeling_mamba.mamba_inner_fn"),
        ("mamba2", "mamba2.modeling_mamba2.mamba2_split_conv1d_scan_combined"),
        ("jamba", None),
        ("bamba", "bamba.modeling_bamba.mamba2_split_conv1d_scan_combined"),
    ],
)
def test_a_delta_within_a_mamba_acts_in_training_where_a_kernel_would_take_its_weights(family, kernel, monkeypatch):
    """The kernel is one that would give the layer's input; the oracle is the same pass where no kernel is asked."""
    model, ids, called = zoo(family), tiny.ids(), []

    def taken(states, *_, **__):
        called.append(states)
        return states.flatten(1)[:, : ids.shape[1] * model.config.hidden_size].view(*ids.shape, -1)

    if kernel is not None:
        monkeypatch.setattr(f"transformers.models.{kernel}", taken)
    (lora,) = tiny.away(model, "lora:rank=2,sites=all-linear", by=0.1)
    with ts.attach(model, lora) as tuned:
        wanted = model(ids, use_cache=False).logits
        model.train()
        tuned.train()
        got = model(ids, use_cache=False).logits
        got.square().sum().backward()
        assert not called and all(value.grad.any() for value in tuned.parameters())
        assert all(module.training for module in model.modules())
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-9)
    model(ids, use_cache=False)
    assert bool(called) == (kernel is not None)  # as before


class Layer(nn.Module):
    """What has a convolution in a file with a kernel, and waits within a call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1d = nn.Conv1d(1, 1, 1)
        self.seen: list[bool] = []

    def forward(self, entered: threading.Event, go: threading.Event) -> None:
        entered.set()
        assert go.wait(20)
        self.seen.append(self.training)


def test_a_layer_of_a_mamba_stays_out_of_its_kernel_until_the_last_thread_has_left(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "mamba_inner_fn", None, raising=False)
    layer, events = Layer().train(), [(threading.Event(), threading.Event()) for _ in range(2)]
    with unfused(layer):
        threads = [threading.Thread(target=layer, args=pair) for pair in events]
        for thread, (entered, _) in zip(threads, events, strict=True):
            thread.start()
            assert entered.wait(20)
        for thread, (_, go) in zip(threads, events, strict=True):
            go.set()
            thread.join()
        assert layer.seen == [False, False] and layer.training
