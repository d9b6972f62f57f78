"""A prompt's embeddings, joined by the written client with a text's, give what the attached model gives."""

import base64
import io
import json
import runpy
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import serving_tools as tools
import tiny
import torch
from safetensors.torch import load_file, save_file

import tunescope as ts
from tunescope.exchange import convert, outgoing
from tunescope.exchange.formats import embeds
from tunescope.methods.text_form import parse

TEXT = "A bad film, 2 + 2.\nLabel:"


def exported(model: Any, arm: str, tokenizer: Any, folder: Path) -> tuple[Any, list[Any]]:
    artifacts = tools.moved(model, *parse(arm), tokenizer=tokenizer)
    return convert.export(folder, artifacts, to="embeds", model=model, tokenizer=tokenizer), artifacts


@pytest.mark.parametrize("family", tools.DECODERS)
@pytest.mark.parametrize("arm", ["soft:length=3", "text:text=A film", "text:text=A film+soft:length=2"])
def test_what_the_client_sends_gives_the_logits_of_the_attached_model(family: str, arm: str, tmp_path: Path) -> None:
    tokenizer = tools.metaspace()
    model = tools.loaded(family, tmp_path / "base", vocabulary=len(tokenizer))
    before = tools.weights(model)
    with tiny.Float64(), torch.no_grad():
        done, artifacts = exported(model, arm, tokenizer, tmp_path / "out")
        client = runpy.run_path(str(tmp_path / "out" / "client_vllm.py"))
        whole = client["embeds"](model, tokenizer, TEXT, tmp_path / "out")
        with ts.attach(model, *artifacts) as tuned:
            ids = tokenizer(TEXT, add_special_tokens="text" not in arm)["input_ids"]
            expected, taken = model(input_ids=torch.tensor([ids])).logits[0], tuned.positions
        got = model(inputs_embeds=whole[None]).logits[0, taken:]
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert done.difference < 1e-12
    assert tools.unchanged(model, before)
    assert ("begins the sequence" in " ".join(done.notes)) == ("text" in arm)


def test_the_client_takes_an_empty_text_behind_words(tmp_path: Path) -> None:
    tokenizer = tools.metaspace()
    model = tools.loaded("llama", tmp_path / "base", vocabulary=len(tokenizer))
    _, artifacts = exported(model, "text:text=A film", tokenizer, tmp_path / "out")
    client = runpy.run_path(str(tmp_path / "out" / "client_vllm.py"))
    got = client["embeds"](model, tokenizer, "", tmp_path / "out")
    assert torch.equal(got, model.get_input_embeddings()(artifacts[0].tensors["ids"]).to(got.dtype))


@pytest.mark.parametrize("to", ["embeds", "vllm_kv", "llama_slot"])
@pytest.mark.parametrize("arm", ["A film.\n", "A film.", "A film.\n+soft:length=2"])
def test_the_space_that_a_text_has_and_a_line_has_not_is_told(to: str, arm: str, tmp_path: Path) -> None:
    for name, tokenizer in {"spaced": tools.metaspace(), "plain": tiny.tokenizer()}.items():
        model = tools.loaded("llama", tmp_path / "base", vocabulary=len(tokenizer))
        artifacts = tools.moved(model, *parse(f"text:text={arm}"), tokenizer=tokenizer)
        done = convert.export(tmp_path / name, artifacts, to=to, model=model, tokenizer=tokenizer)
        is_told = "which a text behind the context's last line does not have" in " ".join(done.notes)
        assert is_told == (arm == "A film.\n" and name == "spaced")


def test_both_files_hold_the_same_numbers_and_nothing_is_pickled(tmp_path: Path) -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    _, artifacts = exported(model, "soft:length=3", tiny.tokenizer(), tmp_path / "out")
    rows = load_file(tmp_path / "out" / "prompt_embeds.safetensors")["prompt_embeds"]
    numbers = torch.tensor(json.loads((tmp_path / "out" / "prompt_embeds.json").read_text()), dtype=torch.float32)
    assert torch.equal(rows, artifacts[0].tensors["embeddings"])
    assert torch.equal(numbers, rows)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["client_vllm.py", "prompt_embeds.json", "prompt_embeds.safetensors", "tunescope-export.json"]
    manifest = json.loads((tmp_path / "out" / "tunescope-export.json").read_text())
    assert manifest["prompt"] == {"tokens": 3, "width": 24, "scale": 1.0}


def test_numbers_that_do_not_agree_with_the_tensors_fail_the_check(tmp_path: Path) -> None:
    model, tokenizer = tiny.make("gpt2"), tiny.tokenizer()
    _, artifacts = exported(model, "soft:length=3", tokenizer, tmp_path / "out")
    given = outgoing.Outgoing(model, tokenizer, tuple(artifacts))
    assert embeds.check(given, tmp_path / "out") < 1e-12
    rows = load_file(tmp_path / "out" / "prompt_embeds.safetensors")["prompt_embeds"]
    save_file({"prompt_embeds": rows + 1e-3}, tmp_path / "out" / "prompt_embeds.safetensors")
    assert embeds.check(given, tmp_path / "out") == float("inf")


class Server(BaseHTTPRequestHandler):
    """As vLLM reads prompt_embeds: base64 of a saved tensor, loaded as weights alone."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        whole = torch.load(io.BytesIO(base64.b64decode(body["prompt_embeds"])), weights_only=True)
        self.server.asked.append((self.path, body, whole))  # type: ignore[attr-defined]
        answer = json.dumps({"choices": [{"text": "good"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


def test_the_client_speaks_to_a_completions_route(tmp_path: Path) -> None:
    model, tokenizer = tiny.make("gpt2", dtype=torch.float32), tiny.tokenizer()
    exported(model, "soft:length=3", tokenizer, tmp_path / "out")
    client = runpy.run_path(str(tmp_path / "out" / "client_vllm.py"))
    whole = client["embeds"](model, tokenizer, "w7 w8", tmp_path / "out")
    server = HTTPServer(("127.0.0.1", 0), Server)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        answer = client["ask"](f"http://127.0.0.1:{server.server_port}", "base", whole, max_tokens=3)
    finally:
        thread.join(30)
        server.server_close()
    assert answer["choices"][0]["text"] == "good"
    path, body, seen = server.asked[0]  # type: ignore[attr-defined]
    assert path == "/v1/completions"
    assert (body["model"], body["max_tokens"]) == ("base", 3)
    assert seen.shape == (5, 24)
    assert torch.equal(seen, whole)


def test_where_the_server_scales_embeddings_again_all_are_divided(tmp_path: Path) -> None:
    model, tokenizer = tools.loaded("gemma2", tmp_path / "base"), tiny.tokenizer()
    with tiny.Float64():
        done, _ = exported(model, "soft:length=3", tokenizer, tmp_path / "out")
    program = (tmp_path / "out" / "client_vllm.py").read_text()
    assert any("multiplies embeddings by 4.89898" in note and "SERVER_SCALES = True" in note for note in done.notes)
    plain = runpy.run_path(str(tmp_path / "out" / "client_vllm.py"))["embeds"](model, tokenizer, "w7", tmp_path / "out")
    (tmp_path / "other.py").write_text(program.replace(", False", ", True"))
    divided = runpy.run_path(str(tmp_path / "other.py"))["embeds"](model, tokenizer, "w7", tmp_path / "out")
    torch.testing.assert_close(divided * 24**0.5, plain, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("arm", "family", "message"),
    [
        ("prefix:length=2", "gpt2", "--to embeds cannot hold prefix: it is keys and values"),
        (
            "soft:length=2+lora:rank=2",
            "gpt2",
            "cannot hold lora: it is a change of weights and no context. Export it apart",
        ),
        ("soft:length=2", "t5", "this model is an encoder-decoder"),
    ],
)
def test_what_is_no_context_of_tokens_is_refused(arm: str, family: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ts.UserError, match=message):
        exported(tiny.make(family), arm, tiny.tokenizer(), tmp_path / "out")


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    model, tokenizer = tiny.make("gpt2"), tiny.tokenizer()
    artifacts = tools.moved(model, ts.Soft(length=2))
    artifacts[0].tensors["embeddings"][0, 0] = float("nan")
    with pytest.raises(ts.UserError, match="not finite: its training diverged"):
        convert.export(tmp_path / "out", artifacts, to="embeds", model=model, tokenizer=tokenizer)
