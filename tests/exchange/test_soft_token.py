"""A soft prompt as added tokens: text, tokenised by what was written, gives what the attached model gives."""

import json
from pathlib import Path
from typing import Any

import pytest
import serving_tools as tools
import tiny
import torch
import transformers as tf
from safetensors.torch import load_file
from tokenizers import AddedToken

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.serving import added_rows
from tunescope.methods.text_form import parse

TEXT = "A bad film, 2 + 2.\nLabel:"
CHAT = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"


def read(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer, by transformers alone."""
    with tools.quiet():
        model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        return model, tf.AutoTokenizer.from_pretrained(folder)


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0]


def exported(model: Any, arm: str, tokenizer: Any, folder: Path) -> tuple[Any, list[Any]]:
    artifacts = tools.moved(model, *parse(arm), tokenizer=tokenizer)
    return convert.export(folder, artifacts, to="soft_token", model=model, tokenizer=tokenizer), artifacts


@pytest.mark.parametrize("family", tools.DECODERS)
def test_text_read_by_the_written_tokenizer_gives_the_logits_of_the_attached_model(family: str, tmp_path: Path) -> None:
    tokenizer = tools.metaspace()
    model = tools.loaded(family, tmp_path / "base", vocabulary=len(tokenizer))
    before, config, plain = tools.weights(model), model.config.to_dict(), tokenizer(TEXT)["input_ids"]
    with tiny.Float64():
        done, artifacts = exported(model, "soft:length=3", tokenizer, tmp_path / "out")
        again, written = read(tmp_path / "out")
        prompt = (tmp_path / "out" / "prompt.txt").read_text()
        ids = written(prompt + TEXT, add_special_tokens=False)["input_ids"]
        got = logits(again, ids)[3:, : len(tokenizer)]
        with ts.attach(model, *artifacts):
            expected = logits(model, plain)
        rows = torch.cat([artifacts[0].tensors["embeddings"], model.get_input_embeddings()(torch.tensor(plain))])
        joined = model(inputs_embeds=rows[None]).logits[0, 3:]
    assert ids == [*range(len(tokenizer), len(tokenizer) + 3), *plain]
    assert plain[0] == tokenizer.bos_token_id
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got, joined, rtol=1e-12, atol=1e-12)
    assert done.difference < 1e-12
    assert tools.unchanged(model, before)
    assert model.config.to_dict() == config


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
def test_in_transformers_the_states_are_those_of_the_joined_embeddings_to_the_bit(family: str, tmp_path: Path) -> None:
    model = tools.loaded(family, tmp_path / "base")
    _, artifacts = exported(model, "soft:length=3", tiny.tokenizer(), tmp_path / "out")
    again, _ = read(tmp_path / "out")
    text = tiny.ids(1)
    rows = torch.cat([artifacts[0].tensors["embeddings"][None], model.get_input_embeddings()(text)], dim=1)
    with torch.no_grad():
        expected = model.base_model(inputs_embeds=rows).last_hidden_state
        got = again.base_model(input_ids=torch.cat([torch.tensor([[97, 98, 99]]), text], dim=1)).last_hidden_state
    assert torch.equal(got, expected)


def test_gemma_multiplies_what_it_looks_up_so_the_stored_rows_are_divided(tmp_path: Path) -> None:
    model = tools.loaded("gemma2", tmp_path / "base")
    with tiny.Float64():
        done, artifacts = exported(model, "soft:length=3", tiny.tokenizer(), tmp_path / "out")
    again, _ = read(tmp_path / "out")
    with torch.no_grad():
        seen = again.get_input_embeddings()(torch.tensor([97, 98, 99]))
    torch.testing.assert_close(seen, artifacts[0].tensors["embeddings"], rtol=1e-15, atol=0)
    stored = again.get_input_embeddings().weight[97:]
    torch.testing.assert_close(stored * 24**0.5, artifacts[0].tensors["embeddings"], rtol=1e-15, atol=0)
    assert any("multiplies embeddings by 4.89898" in note and "--to embeds" in note for note in done.notes)


@pytest.mark.parametrize("family", ["gpt2", "phi", "gemma2"])
def test_no_added_token_is_ever_written_and_the_old_head_is_as_it_was(family: str, tmp_path: Path) -> None:
    model = tools.loaded(family, tmp_path / "base")
    head = model.get_output_embeddings()
    with torch.no_grad():  # all logits far below 0, as GPT-2's are: rows of zeros would win everywhere
        if family == "gpt2":
            model.transformer.ln_f.bias.fill_(2.0)
            head.weight.sub_(1.0)
        if family == "phi":
            head.bias.sub_(50.0)
    with tiny.Float64():
        _, artifacts = exported(model, "soft:length=2", tiny.tokenizer(), tmp_path / "out")
        again, tokenizer = read(tmp_path / "out")
        got = logits(again, [97, 98, *range(3, 60)])
    new = again.get_output_embeddings()
    assert torch.equal(new.weight[:97], head.weight)
    assert again.get_output_embeddings().weight is not again.get_input_embeddings().weight
    assert not again.config.tie_word_embeddings
    assert family == "gemma2" or bool((got < 0).all())
    assert int(got.argmax(-1).max()) < 97
    assert bool((got.softmax(-1)[:, 97:] <= 1 / 97).all())
    assert again.generation_config.suppress_tokens == [97, 98]
    given = tokenizer((tmp_path / "out" / "prompt.txt").read_text() + "w7 w8", return_tensors="pt")
    with tiny.Float64():
        written = again.generate(**given, max_new_tokens=6, do_sample=False)[0, 4:]
        with ts.attach(model, *artifacts):
            expected = model.generate(torch.tensor([[7, 8]]), max_new_tokens=6, do_sample=False)[0, 2:]
    assert written.tolist() == expected.tolist()


def test_changes_of_weights_beside_it_are_merged_and_several_contexts_stand_in_order(tmp_path: Path) -> None:
    tokenizer = tools.byte_level(start=True)
    model = tools.loaded("llama", tmp_path / "base", vocabulary=len(tokenizer))
    before = tools.weights(model)
    with tiny.Float64():
        done, artifacts = exported(
            model, "text:text=A film+soft:length=2+lora:rank=2+full", tokenizer, tmp_path / "out"
        )
        again, written = read(tmp_path / "out")
        prompt = (tmp_path / "out" / "prompt.txt").read_text()
        plain = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
        ids = written(prompt + TEXT, add_special_tokens=False)["input_ids"]
        with ts.attach(model, *artifacts) as tuned:
            expected, taken = logits(model, plain), tuned.positions
        got = logits(again, ids)[taken:, : len(tokenizer)]
    assert ids[taken:] == plain  # the text context has begun the sequence: no start token
    assert prompt == "".join(f"<ts_{index}>" for index in range(taken))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert done.difference < 1e-12
    assert tools.unchanged(model, before)


@pytest.mark.parametrize("make", [tools.byte_level, tools.metaspace], ids=["bytes", "words"])
@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize(
    "text", ["The film was good.\nLabel:", "a", "good<s> and", "é, 2\n\n3", " a space in front", "<s>"]
)
def test_prompt_and_text_as_one_string_have_the_ids_that_they_have_apart(
    make: Any, start: bool, text: str, tmp_path: Path
) -> None:
    tokenizer = make(start=start)
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    exported(model, "soft:length=11", tokenizer, tmp_path / "out")
    _, written = read(tmp_path / "out")
    prompt = (tmp_path / "out" / "prompt.txt").read_text()
    front = [1] if start else []
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    expected = [*range(len(tokenizer), len(tokenizer) + 11), *front, *plain]
    ids, words = written(prompt + text, add_special_tokens=False)["input_ids"], make is tools.metaspace
    page = (tmp_path / "out" / "README.md").read_text()
    assert prompt.endswith(" ") == words
    assert ("Of a text that begins with a space or a special\ntoken itself, send the ids" in page) == words
    assert (ids == expected) == (not words or text not in (" a space in front", "<s>"))


def test_a_tokenizer_that_reads_no_string_as_meant_is_told_and_the_ids_are_given(tmp_path: Path) -> None:
    tokenizer = tools.metaspace()
    start = AddedToken("<s>", rstrip=True, special=True, normalized=False)  # it eats the space that a word needs
    tokenizer.backend_tokenizer.add_special_tokens([start])
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    done, artifacts = exported(model, "soft:length=2", tokenizer, tmp_path / "out")
    assert any("no string gives the ids of the tuning with this tokenizer: send ids" in note for note in done.notes)
    assert not (tmp_path / "out" / "prompt.txt").exists()
    front = [len(tokenizer), len(tokenizer) + 1, 1]
    said = f"{front} + tokenizer(text, add_special_tokens=False)"
    assert said in (tmp_path / "out" / "README.md").read_text()
    assert done.difference < 1e-12
    again, written = read(tmp_path / "out")
    with ts.attach(model, *artifacts):
        expected = logits(model, tokenizer(TEXT)["input_ids"])
    got = logits(again, front + written(TEXT, add_special_tokens=False)["input_ids"])
    torch.testing.assert_close(got[2:, : len(tokenizer)], expected, rtol=1e-12, atol=1e-12)


def test_padding_rows_of_the_model_are_left_alone_and_told(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    model = tools.loaded("llama", tmp_path / "base", vocabulary=103)
    done, artifacts = exported(model, "soft:length=2", tokenizer, tmp_path / "out")
    again, written = read(tmp_path / "out")
    assert any("for which the tokenizer has no token: 6. They are left as they are" in note for note in done.notes)
    assert written.convert_tokens_to_ids(["<ts_0>", "<ts_1>"]) == [103, 104]
    assert torch.equal(again.get_input_embeddings().weight[:103], model.get_input_embeddings().weight)
    assert torch.equal(again.get_output_embeddings().weight[:103], model.get_output_embeddings().weight)
    assert torch.equal(again.get_input_embeddings().weight[103:], artifacts[0].tensors["embeddings"])
    assert again.generation_config.suppress_tokens == [103, 104]


def test_tokens_that_are_there_already_are_never_taken(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["<ts_1>"])
    model = tools.loaded("llama", tmp_path / "base", vocabulary=98)
    with pytest.raises(ts.UserError, match="has a token '<ts_1>' already, so a prompt was added to this model before"):
        exported(model, "soft:length=2", tokenizer, tmp_path / "out")
    small = tools.loaded("llama", tmp_path / "small", vocabulary=50)
    with pytest.raises(ts.UserError, match=r"has 97 tokens and the model 50 rows, .* not the model's own tokenizer"):
        exported(small, "soft:length=2", tiny.tokenizer(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("several", [False, True])
def test_a_chat_template_puts_the_prompt_before_all_that_it_writes(several: bool, tmp_path: Path) -> None:
    template: Any = {"default": CHAT, "tool_use": "T" + CHAT} if several else CHAT
    tokenizer = tools.byte_level(start=True, template=template)
    model = tools.loaded("llama", tmp_path / "base", vocabulary=len(tokenizer))
    exported(model, "soft:length=2", tokenizer, tmp_path / "out")
    _, written = read(tmp_path / "out")
    said = [{"role": "user", "content": "A film"}]
    for name in ["default", "tool_use"] if several else [None]:
        old = tokenizer.apply_chat_template(said, chat_template=name, return_dict=False)
        new = written.apply_chat_template(said, chat_template=name, return_dict=False)
        assert new == [len(tokenizer), len(tokenizer) + 1, *old]
    assert "The chat template puts them in front" in (tmp_path / "out" / "README.md").read_text()


def test_the_readme_and_the_manifest_say_what_to_send(tmp_path: Path) -> None:
    tokenizer = tools.metaspace()
    model = tools.loaded("llama", tmp_path / "base", vocabulary=len(tokenizer))
    done, _ = exported(model, "soft:length=2", tokenizer, tmp_path / "out")
    page = (tmp_path / "out" / "README.md").read_text()
    first = len(tokenizer)
    assert f"`<ts_0>` to `<ts_1>` (ids {first} to {first + 1})" in page
    assert "The start token <s> is in it" in page
    assert "## Chat" not in page
    assert "add_special_tokens=False" in page and "{" not in page.replace('{"ID": -100}', "")
    assert any("no chat template: put prompt.txt in front" in note for note in done.notes)
    manifest = json.loads((tmp_path / "out" / "tunescope-export.json").read_text())
    assert manifest["prompt"] == {"tokens": 2, "first_id": first}
    assert str(tmp_path) not in page + json.dumps(manifest)


def test_a_base_that_suppresses_tokens_goes_on_doing_so(tmp_path: Path) -> None:
    model = tools.loaded("llama", tmp_path / "base")
    model.generation_config.suppress_tokens = [5]
    exported(model, "soft:length=2", tiny.tokenizer(), tmp_path / "out")
    assert read(tmp_path / "out")[0].generation_config.suppress_tokens == [5, 97, 98]
    assert model.generation_config.suppress_tokens == [5]


def test_in_bfloat16_the_rows_are_those_that_the_attached_model_reads(tmp_path: Path) -> None:
    model = tiny.make("llama", dtype=torch.bfloat16)
    done, artifacts = exported(model, "soft:length=2", tiny.tokenizer(), tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")["model.embed_tokens.weight"][97:]
    assert torch.equal(stored, artifacts[0].tensors["embeddings"].to(torch.bfloat16))
    assert done.difference < 5e-2


@pytest.mark.parametrize(
    ("arm", "family", "message"),
    [
        ("soft:length=2", "t5", "in front of a decoder's text, and this model is an encoder-decoder"),
        ("soft:length=2", "bert", "and this model is an encoder: keep it"),
        ("prefix:length=2", "gpt2", "--to soft_token cannot hold prefix: it is keys and values"),
        ("soft:length=2+adapter:bottleneck=2", "gpt2", "--to soft_token cannot hold adapter: its work inside a layer"),
        ("lora:rank=2", "gpt2", "holds a context of tokens, and there is none: use --to merged"),
        ("text:text=w5 w6", "gpt2", "is for trained embeddings, and this context is words: use --to messages"),
        ("soft:length=62", "gpt2", None),
    ],
)
def test_what_tokens_cannot_be_is_refused_with_the_reason(
    arm: str, family: str, message: str | None, tmp_path: Path
) -> None:
    model = tiny.make(family)
    if message is None:  # two positions are left, and the text is cut to them
        assert exported(model, arm, tiny.tokenizer(), tmp_path / "out")[0].difference < 1e-12
        return
    with pytest.raises(ts.UserError, match=message):
        exported(model, arm, tiny.tokenizer(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_prompt_that_fills_the_model_and_a_missing_tokenizer_are_refused(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    with pytest.raises(
        ts.UserError, match="A prompt of 64 tokens leaves no room for a text in this model of 64 positions"
    ):
        exported(model, "soft:length=64", tiny.tokenizer(), tmp_path / "out")
    artifacts = tools.moved(model, ts.Soft(length=2))
    with pytest.raises(ts.UserError, match=r"--to soft_token needs the model's tokenizer: export\(\.\.\., tokenizer"):
        convert.export(tmp_path / "out", artifacts, to="soft_token", model=model)


def test_a_tokenizer_that_transformers_reads_as_another_is_refused(tmp_path: Path) -> None:
    model = tools.loaded("qwen2", tmp_path / "base")
    with pytest.raises(
        ts.UserError,
        match="reads the written tokenizer as Qwen2Tokenizer, with other ids than the TokenizersBackend given",
    ):
        exported(model, "soft:length=2", tiny.tokenizer(), tmp_path / "out")


class Square(torch.nn.Embedding):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids) ** 2


def test_a_table_that_does_more_than_multiply_is_refused() -> None:
    with pytest.raises(ts.UserError, match="Square does more than look up rows and multiply them by a constant"):
        added_rows.scale(Square(5, 3))
    assert added_rows.scale(torch.nn.Embedding(5, 3, padding_idx=4)) == 1
