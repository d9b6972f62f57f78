"""The program beside exported embeddings: it joins them with a text's and asks a vLLM server."""

from __future__ import annotations

from collections.abc import Sequence

CLIENT = '''\
"""Ask a vLLM server with the prompt in this folder in front of a text: python client_vllm.py MODEL URL TEXT

Start it with: vllm serve MODEL --enable-prompt-embeds
"""

import base64, io, json, pathlib, sys, urllib.request

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

START = {start}  # ids of the tokenizer's start token, where the prompt has not begun the sequence
SCALE, SERVER_SCALES = {scale!r}, False  # True for a server that multiplies what it is given by SCALE


def embeds(model, tokenizer, text, folder=pathlib.Path(__file__).parent):
    """(n, width): the prompt's embeddings and the text's."""
    prompt = load_file(folder / "prompt_embeds.safetensors")["prompt_embeds"]
    ids = torch.tensor(START + tokenizer(text, add_special_tokens=False)["input_ids"], dtype=torch.long)
    with torch.no_grad():
        whole = torch.cat([prompt, model.get_input_embeddings()(ids).to(prompt.dtype)])
    return whole / SCALE if SERVER_SCALES else whole


def ask(url, name, whole, **options):
    """The server's answer, as JSON."""
    packed = io.BytesIO()
    torch.save(whole, packed)
    body = {{"model": name, "prompt_embeds": base64.b64encode(packed.getvalue()).decode(), **options}}
    headers = {{"Content-Type": "application/json"}}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))


if __name__ == "__main__":
    name, url, text = sys.argv[1:]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    print(ask(url, name, embeds(model, tokenizer, text), max_tokens=64)["choices"][0]["text"])
'''


def client(start: Sequence[int], scale: float) -> str:
    """Python. start: ids between the prompt and the text. scale: by which the family multiplies its embeddings."""
    return CLIENT.format(start=list(start), scale=scale)
