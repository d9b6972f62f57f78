"""transformers' Trainer trains what is attached as a loop by hand does, resumes it, and brings the best back."""

import gc
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import accelerate
import pytest
import tiny
import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import load_file
from torch import Tensor
from training import STEPS, arguments, by_hand, recording

import tunescope as ts
from tunescope.attachment.attached import Attached
from tunescope.attachment.bank.banked import Banked
from tunescope.attachment.weights import named_parameters
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.models.fingerprint import fingerprint


def examples(model: Any, n: int = 12) -> list[dict[str, Tensor]]:
    """Rows of six tokens; the first label is masked, for nothing predicts it."""
    made = []
    for row in tiny.ids(n, 6):
        if tiny.is_decoder(model):
            labels = torch.cat([torch.tensor([-100]), row[1:]])
        elif model.config.is_encoder_decoder:
            labels = row.flip(0)[:4]
        else:
            labels = row[0] % 2
        made.append({"input_ids": row, "labels": labels})
    return made


def snapshot(tuned: Attached | Banked) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in tuned.named_parameters().items()}


def model_of(family: str) -> Any:
    """In double precision; an encoder with a classifier."""
    if family != "bert":
        return tiny.make(family)
    return tiny.build(tf.AutoModelForSequenceClassification, tiny.configs()["bert"])


def copied(artifacts: list[Artifact]) -> list[Artifact]:
    return [Artifact(a.spec, {name: value.clone() for name, value in a.tensors.items()}) for a in artifacts]


@pytest.mark.parametrize(
    ("family", "arm"),
    [
        ("gpt2", "lora:rank=2+prefix:length=3"),
        ("gpt2", "bias"),
        ("llama", "soft:length=3+adapter:bottleneck=3"),
        ("qwen3", "prefix:length=3,mlp=4"),
        ("t5", "lora:rank=2+prefix:length=3"),
        ("bert", "head:n_labels=2+prefix:length=2"),
        ("bert", "full"),
    ],
)
def test_a_trainer_trains_to_the_tensors_of_a_loop_by_hand(family: str, arm: str, tmp_path: Path) -> None:
    model, seen = model_of(family), []
    start = tiny.away(model, arm, 0)
    with tiny.Float64(), ts.attach(model, *copied(start)) as tuned:
        with tuned.registered():
            data = examples(model)
            tf.Trainer(model, arguments(tmp_path), train_dataset=data, data_collator=recording(seen)).train()
        by_trainer = snapshot(tuned)
    with tiny.Float64(), ts.attach(model, *copied(start)) as tuned:
        before = snapshot(tuned)
        by_hand(model, tuned.train().parameters(), seen[:STEPS])
        for name, value in tuned.eval().named_parameters().items():
            torch.testing.assert_close(by_trainer[name], value, rtol=0, atol=1e-9)
        assert sum(not torch.equal(by_trainer[name], before[name]) for name in before) > 0.9 * len(before)


def test_a_trainer_trains_a_bank_each_row_its_own(tmp_path: Path) -> None:
    model, seen = tiny.make("gpt2"), []
    start = {"anna": tiny.away(model, "prefix:length=3", 0), "ben.v2": tiny.away(model, "lora:rank=2", 1)}
    banks = [ts.Bank({name: copied(artifacts) for name, artifacts in start.items()}) for _ in range(2)]
    collate = recording(seen, ["anna", None, "ben.v2"])
    with tiny.Float64(), ts.attach(model, banks[0]) as tuned:
        given = arguments(tmp_path, remove_unused_columns=False, per_device_train_batch_size=4)
        with tuned.registered():
            tf.Trainer(model, given, train_dataset=examples(model, 16), data_collator=collate).train()
        by_trainer = snapshot(tuned)
    with tiny.Float64(), ts.attach(model, banks[1]) as tuned:
        before = snapshot(tuned)
        by_hand(model, tuned.train().parameters(), seen[:STEPS])
        for name, value in tuned.eval().named_parameters().items():
            assert not torch.equal(by_trainer[name], before[name])
            torch.testing.assert_close(by_trainer[name], value, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("family", "arm"), [("gpt2", "lora:rank=2,dropout=0.5+prefix:length=3"), ("gpt2", "bias")])
def test_a_checkpoint_holds_what_is_tuned_alone_and_resumes_to_the_same_bits(
    family: str, arm: str, tmp_path: Path
) -> None:
    model = tiny.make(family, dtype=torch.float32)
    given = arguments(tmp_path, save_strategy="steps", save_steps=2)

    def trained(resume: str | None, seed: int) -> tuple[dict[str, Tensor], set[str]]:
        with ts.attach(model, *tiny.away(model, arm, seed)) as tuned:
            with tuned.registered():
                tf.Trainer(model, given, train_dataset=examples(model)).train(resume_from_checkpoint=resume)
            return snapshot(tuned), set(tuned.named_parameters())

    whole, names = trained(None, 0)
    halfway = tmp_path / "checkpoint-2"
    assert set(load_file(halfway / "model.safetensors")) == {f"tunescope.{name}" for name in names}
    assert not (halfway / "config.json").exists()  # so that nobody loads it as a model
    resumed, _ = trained(str(halfway), 1)
    for name in names:
        assert torch.equal(resumed[name], whole[name])


def test_the_best_comes_back_at_the_end(tmp_path: Path) -> None:
    model, seen, scores = tiny.make("gpt2", dtype=torch.float32), [], iter([1.0, 3.0, 2.0, 0.0])
    given = arguments(
        tmp_path,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="best",
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
    )
    with ts.attach(model, ts.Prefix(length=3, mlp=4), ts.LoRA(rank=2)) as tuned:

        def score(_outputs: Any) -> dict[str, float]:
            seen.append(snapshot(tuned))
            return {"score": next(scores)}

        data = examples(model, 6)
        with tuned.registered():
            tf.Trainer(model, given, train_dataset=data, eval_dataset=data[:2], compute_metrics=score).train()
        end = snapshot(tuned)
    for name, value in end.items():
        assert torch.equal(value, seen[1][name])
        assert not torch.equal(value, seen[3][name])


def test_label_smoothing_and_the_length_of_logits_are_as_without_a_context(tmp_path: Path) -> None:
    model, data = tiny.make("llama", dtype=torch.float32), None
    data = examples(model, 3)
    given = arguments(tmp_path, label_smoothing_factor=0.2, per_device_eval_batch_size=3)
    with ts.attach(model, ts.Prefix(length=4), ts.Soft(length=2)) as tuned:
        with tuned.registered():
            found = tf.Trainer(model, given, eval_dataset=data).predict(data)
        logits = model(input_ids=torch.stack([row["input_ids"] for row in data])).logits.detach()
    labels = torch.stack([row["labels"] for row in data])
    wanted = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), label_smoothing=0.2)
    torch.testing.assert_close(torch.tensor(found.metrics["test_loss"]), wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.tensor(found.predictions), logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("beams", [1, 2])
def test_a_seq2seq_trainer_predicts_what_generate_gives(beams: int, tmp_path: Path) -> None:
    model, data = tiny.make("t5", dtype=torch.float32), None
    data = examples(model, 4)
    given = arguments(
        tmp_path, tf.Seq2SeqTrainingArguments, predict_with_generate=True, per_device_eval_batch_size=4, max_steps=1
    )
    how = {"max_length": 7, "num_beams": beams, "do_sample": False}
    with ts.attach(model, *tiny.away(model, "lora:rank=2+prefix:length=3", 0)) as tuned:
        with tuned.registered():
            trainer = tf.Seq2SeqTrainer(model, given, train_dataset=data)
            trainer.train()
            found = torch.tensor(trainer.predict(data, **how).predictions)
        wanted = model.eval().generate(input_ids=torch.stack([row["input_ids"] for row in data]), **how)
    found = torch.where(found == -100, 0, found)
    assert torch.equal(found[:, : wanted.shape[1]], wanted) and not found[:, wanted.shape[1] :].any()


def test_dropout_of_the_deltas_follows_the_mode_of_the_model_while_registered() -> None:
    model, given = tiny.make("gpt2"), {"input_ids": tiny.ids()}
    with ts.attach(model, *tiny.away(model, "lora:rank=2,dropout=0.5", 0)) as tuned:
        resting = model(**given).logits
        with tuned.registered():
            assert torch.equal(model(**given).logits, resting)  # the model is in its mode for use, as it came
            model.train()
            assert not torch.equal(model(**given).logits, resting)
            model.eval()
            assert torch.equal(model(**given).logits, resting)
            assert all(value.requires_grad for value in tuned.parameters())
        assert not tuned.training and not any(value.requires_grad for value in tuned.parameters())
        assert torch.equal(model(**given).logits, resting)


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_registering_confuses_nothing_and_leaves_no_trace(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    given = {"input_ids": tiny.ids()}
    print_of_base, parameters = fingerprint(model), set(named_parameters(model))
    artifacts = tiny.away(model, "lora:rank=2+prefix:length=2+bias", 0)
    with ts.attach(model, *artifacts) as tuned:
        attributes, state, want = set(vars(model)), set(model.state_dict()), tiny.output(model, given)
        with tuned.registered():
            names = {f"tunescope.{name}" for name in tuned.named_parameters()}
            asked = {name: value for name, value in model.named_parameters() if value.requires_grad}
            assert set(asked) == names
            assert all(asked[f"tunescope.{name}"] is value for name, value in tuned.named_parameters().items())
            assert set(model.state_dict()) == state | names and set(named_parameters(model)) == parameters
            tiny.output(model, given).sum().backward()
            assert {name for name, value in model.named_parameters() if value.requires_grad} == names
            ts.save(tmp_path / "saved", tuned.artifacts, model=model)
            with tuned.paused():
                assert fingerprint(model) == print_of_base
                assert not torch.equal(tiny.output(model, given), want)
            assert all(value.requires_grad for value in tuned.parameters())
            assert fingerprint(model) == print_of_base
        assert set(vars(model)) == attributes and set(model.state_dict()) == state
        assert torch.equal(tiny.output(model, given), want)
    assert [a.spec for a in ts.load(tmp_path / "saved")] == [a.spec for a in artifacts]


@pytest.mark.filterwarnings("ignore:Removed shared tensor")
def test_accelerate_saves_and_loads_what_is_tuned_beside_the_base(tmp_path: Path) -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    given = tiny.batch(model)
    with ts.attach(model, *tiny.away(model, "lora:rank=2+bias", 0)) as tuned, tuned.registered():
        accelerator, optimizer = accelerate.Accelerator(cpu=True), torch.optim.AdamW(tuned.parameters())
        accelerator.prepare(model, optimizer)
        before, wanted = snapshot(tuned), model(**given).logits.detach().clone()
        accelerator.save_state(str(tmp_path))
        with torch.no_grad():
            for value in tuned.parameters():
                value += 1
        accelerator.load_state(str(tmp_path))
        assert all(torch.equal(value, before[name]) for name, value in tuned.named_parameters().items())
        assert torch.equal(model(**given).logits, wanted)


@pytest.mark.parametrize("is_banked", [False, True])
def test_what_is_attached_twice_is_saved_and_loaded(is_banked: bool, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    (shared,), (own,) = tiny.away(model, "soft:length=2", 0), tiny.away(model, "lora:rank=2", 1)
    given = [ts.Bank({"anna": [shared, own], "ben": [shared]})] if is_banked else [own, own]
    with ts.attach(model, *given) as tuned, tuned.registered():
        before = snapshot(tuned)
        model.save_pretrained(tmp_path)
        state = load_file(tmp_path / "model.safetensors")
        assert {name.removeprefix("tunescope."): value.shape for name, value in state.items()} == {
            name: value.shape for name, value in before.items()
        }
        with torch.no_grad():
            for value in tuned.parameters():
                value += 1
        model.load_state_dict(state, strict=False)
        assert all(torch.equal(value, before[name]) for name, value in tuned.named_parameters().items())


def test_a_state_dict_of_the_whole_model_still_loads_as_a_whole() -> None:
    model = tiny.make("gpt2")
    with ts.attach(model, *tiny.away(model, "lora:rank=2", 0)) as tuned, tuned.registered():
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            for value in model.parameters():
                value.zero_()
        model.load_state_dict(state)
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("arm", ["lora:rank=2", "full"])
def test_a_detach_while_registered_leaves_the_bare_model(arm: str, tmp_path: Path) -> None:
    model = tiny.make("llama")
    before = set(model.__dict__)
    tuned = ts.attach(model, *tiny.away(model, arm))
    with tuned.registered():
        tuned.detach()
    assert set(model.__dict__) == before
    model.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(model.state_dict())


def test_what_cannot_be_registered_is_refused_in_one_line(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    given = {"input_ids": tiny.ids()}
    with (
        ts.attach(model, ts.Text(text="w5 w6"), tokenizer=tiny.tokenizer()) as tuned,
        pytest.raises(ts.UserError, match="nothing that is attached can be trained"),
        tuned.registered(),
    ):
        pass
    with ts.attach(model, ts.LoRA(rank=2)) as tuned, tuned.registered():
        with pytest.raises(ts.UserError, match="registered already"), tuned.registered():
            pass
        model.save_pretrained(tmp_path)
    assert "tunescope" not in model._modules and "save_pretrained" not in vars(model)
    state = load_file(tmp_path / "model.safetensors")
    with (
        ts.attach(model, ts.LoRA(rank=3)) as tuned,
        tuned.registered(),
        pytest.raises(ts.UserError, match=r"other artifacts than are attached: '0\..*' is \(2, 24\) there and \(3, 24"),
    ):
        model.load_state_dict(state, strict=False)
    with ts.attach(model, ts.LoRA(rank=2)) as tuned:
        with pytest.raises(ts.UserError, match=r"put another tensor in the place of .* as FSDP and DeepSpeed do"):
            exchange(model, tuned, run=lambda: model(**given))
        with pytest.raises(ts.UserError, match="put another tensor in the place of"):
            exchange(model, tuned, run=lambda: None)


def test_what_was_detached_is_not_taken_for_attached_and_no_trainer_trains_the_base_in_its_place() -> None:
    model = tiny.make("gpt2")
    tuned = ts.attach(model, ts.Full())
    tuned.detach()
    for who, again in (("registered", tuned.registered), ("in_place", tuned.in_place), ("with", lambda: tuned)):
        with pytest.raises(ts.UserError, match=rf"^{who}.*detached from its GPT2LMHeadModel.* attach\("), again():
            assert any(value.requires_grad for value in model.parameters())  # a Trainer would find these
    with ts.attach(model, ts.LoRA(rank=2)) as other:
        with pytest.raises(ts.UserError, match="detached"), tuned.registered():
            pass
        with other.paused(), pytest.raises(ts.UserError, match="or is paused"), other.registered():
            pass


def test_what_a_bank_s_rows_are_for_is_attached() -> None:
    model = tiny.make("gpt2")
    tuned = ts.attach(model, ts.Bank({"a": tiny.away(model, "lora:rank=2")}))
    tuned.detach()
    with pytest.raises(ts.UserError, match=r"^rows\(\): this was detached"), tuned.rows(["a"]):
        pass


def test_what_is_no_transformers_model_is_refused_in_one_line_which_names_the_model_inside_of_it() -> None:
    model = tiny.make("gpt2")
    for given, told in (
        ("gpt2", "this is str: AutoModelForCausalLM"),
        (torch.nn.Linear(2, 2), "this is Linear: AutoModelForCausalLM"),
        (torch.nn.DataParallel(model), r"this is DataParallel: attach\(model\.module, \.\.\.\)"),
        (torch.optim.swa_utils.AveragedModel(model), r"this is AveragedModel: attach\(model\.module, "),
    ):
        with pytest.raises(ts.UserError, match=told):
            ts.attach(given, ts.LoRA(rank=2))
    compiled = torch.compile(model, backend="eager")
    with ts.attach(compiled, ts.LoRA(rank=2)):
        pass


def exchange(model: Any, tuned: Attached, run: Any) -> None:
    with tuned.registered():
        holder = next(module for module in model.tunescope.modules() if module._parameters)
        name, value = next(iter(holder._parameters.items()))
        holder._parameters[name] = value.clone()
        run()


def test_a_head_stands_in_for_a_classifier_and_elsewhere_is_refused() -> None:
    config = tiny.configs()["roberta"]
    model = tiny.build(tf.AutoModelForSequenceClassification, config)
    given = tiny.batch(model) | {"labels": torch.tensor([0, 1])}
    with ts.attach(model, *tiny.away(model, "head:n_labels=2+lora:rank=2", 0)) as tuned:
        out = model(**given)
        states = model.base_model(**{name: value for name, value in given.items() if name != "labels"})
        head = tuned.artifacts[0].tensors
        wanted = states.last_hidden_state[:, 0] @ head["pooled:weight"].T + head["pooled:bias"]
    torch.testing.assert_close(out.logits, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(out.loss, F.cross_entropy(wanted, given["labels"]), rtol=0, atol=1e-12)
    with pytest.raises(ts.UserError, match=r"a model of 2 labels: load the model with num_labels=3"):
        ts.attach(model, ts.Head(n_labels=3))
    with pytest.raises(ts.UserError, match="load the model as AutoModel, or as AutoModelForSequenceClassification"):
        ts.attach(tiny.build(tf.AutoModelForMaskedLM, config), ts.Head(n_labels=2))


def test_a_head_is_as_wide_as_the_states_it_reads_where_opt_projects_them() -> None:
    sizes = {"vocab_size": tiny.VOCAB, "hidden_size": 32, "word_embed_proj_dim": 16, "ffn_dim": 32}
    config = tf.OPTConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, do_layer_norm_before=False)
    model, ids = tiny.build(tf.AutoModel, config), tiny.ids()
    with ts.attach(model, *tiny.away(model, "head:n_labels=3,token=last", 0)) as tuned, torch.no_grad():
        head, out = tuned.artifacts[0].tensors, model(ids)
    wanted = out.last_hidden_state[:, -1] @ head["pooled:weight"].T + head["pooled:bias"]
    torch.testing.assert_close(out.logits, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("in_bank", [False, True])
def test_a_base_model_called_by_itself_leaves_no_logits_of_a_head_behind(in_bank: bool) -> None:
    model = model_of("bert")
    given, head = tiny.batch(model), tiny.away(model, "head:n_labels=2,pooler=true", 0)
    left: list[weakref.ref[Tensor]] = []
    tuned: Attached | Banked = ts.attach(model, *([ts.Bank({"anna": head})] if in_bank else head))
    with tuned, tuned.rows(["anna", "anna"]) if isinstance(tuned, Banked) else nullcontext():
        wanted = model(**given).logits
        for _ in range(5):
            alone = model.base_model(**given).logits
            assert torch.equal(alone, wanted)
            left.append(weakref.ref(alone))
        with pytest.raises(IndexError):
            model(input_ids=torch.tensor([[10**6]] * 2))
        del alone
        gc.collect()
        assert [one() for one in left] == [None] * 5
        assert torch.equal(model(**given).logits, wanted)
        assert torch.equal(model.forward(**given).logits, wanted)  # past the hooks of the whole model


def test_a_call_cut_short_before_the_classifier_leaves_no_logits_of_a_head_behind() -> None:
    model = model_of("bert")
    given, left = tiny.batch(model), []

    def cut(_module: Any, _args: Any, output: Any) -> None:
        left.append(weakref.ref(output.logits))
        raise ZeroDivisionError

    with ts.attach(model, *tiny.away(model, "head:n_labels=2", 0)):
        wanted = model(**given).logits
        handle = model.base_model.register_forward_hook(cut)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                model(**given)
        handle.remove()
        gc.collect()
        assert [one() for one in left] == [None] * 3
        assert torch.equal(model(**given).logits, wanted)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("arm", ["prefix:length=3", "lora:rank=2"])
def test_a_trainer_that_would_train_nothing_is_refused_at_its_first_step(arm: str, own: bool, tmp_path: Path) -> None:
    model, seen = tiny.make("gpt2", dtype=torch.float32), []
    with ts.attach(model, *tiny.away(model, arm, 0)) as tuned:
        optimizers = (torch.optim.AdamW(tuned.train().parameters()) if own else None, None)
        tuned.train()
        trainer = tf.Trainer(
            model,
            arguments(tmp_path),
            train_dataset=examples(model),
            eval_dataset=examples(model),
            data_collator=recording(seen),
            optimizers=optimizers,
        )
        assert "eval_loss" in trainer.evaluate()
        seen.clear()
        with pytest.raises(UserError, match=r"^This Trainer would train nothing: .* `with tuned\.registered"):
            trainer.train()
        assert len(seen) <= 1
    assert "zero_grad" not in model.__dict__


def test_a_trainer_of_the_models_own_parameters_is_not_refused(tmp_path: Path) -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    with ts.attach(model, ts.Prefix(length=3)):
        own = model.transformer.wte.weight.requires_grad_()
        before = own.detach().clone()
        tf.Trainer(model, arguments(tmp_path), train_dataset=examples(model)).train()
        assert not torch.equal(own, before)


@pytest.mark.parametrize("none", [True, False])
def test_zero_grad_of_the_model_clears_what_is_tuned(none: bool) -> None:
    model = tiny.make("gpt2")
    with ts.attach(model, ts.Prefix(length=3), ts.LoRA(rank=2)) as tuned:
        for _ in range(2):
            tuned.train()
            model(input_ids=tiny.ids(2, 5)).logits.square().sum().backward()
            assert any(value.grad.abs().max() > 0 for value in tuned.parameters() if value.grad is not None)
            model.zero_grad(none)
            left = [value.grad for value in tuned.parameters() if value.grad is not None]
            assert left == [] if none else left and not any(one.any() for one in left)
    model.zero_grad()
    assert "zero_grad" not in model.__dict__
