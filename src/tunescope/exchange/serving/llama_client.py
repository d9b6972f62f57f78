"""Serve the context in this folder by a llama.cpp server: python client_llama.py URL SLOTS TEXT

Start it with: llama-server -m MODEL.gguf --slot-save-path SLOTS -fa off -ctk f32 -ctv f32
(With its defaults too; keys and values are then rounded to 16 bits.) Needs numpy. SLOTS is the folder of that option.
"""

import json
import pathlib
import struct
import sys
import urllib.request
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Ids = tuple[int, ...]
FILE, STAND_IN = "context.bin", 0  # of the slot; the id that stands in for the context's positions
START: Ids = ()  # between the context and a text
FLOATS: dict[int, Any] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}  # ggml's types of a cache; the others are quantised


def post(url: str, path: str, body: dict[str, Any]) -> Any:
    """The server's answer, as JSON."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def places(data: bytes, tokens: int, more: int) -> list[tuple[int, int, int, bool]]:
    """(offset, type, bytes, channel by channel) of the keys of all layers, then of their values, in a slot file.

    more: bytes of the head that newer servers have. An empty list: this is no such file.
    """
    at = 0

    def read(form: str) -> Any:
        nonlocal at
        found = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return found

    found = []
    try:
        magic, _, count = read("4sII")
        at += 4 * count  # the tokens, packed in the server's own way
        if magic != b"qsgg" or read("II") != (1, tokens):
            return []
        for _ in range(tokens):
            _, owners = read("iI")  # its position, and how many sequences have it
            at += 4 * owners
        is_turned, layers = read("II")
        at += more
        for side in range(2):
            for _ in range(layers):
                if side and is_turned:  # as without flash attention
                    kind, size, width = read("iII")
                    row = size * width
                else:
                    kind, row = read("iQ")
                found.append((at, kind, row * tokens, bool(side and is_turned)))
                at += row * tokens
    except (struct.error, OverflowError):
        return []
    return found if at == len(data) else []


def patched(data: bytes, keys: Array, values: Array) -> bytes:
    """A slot file as the server saved it, with these keys and values (layers, n, width) in the place of its own."""
    out, tokens = bytearray(data), keys.shape[1]
    found = places(data, tokens, 0) or places(data, tokens, 8)
    if not found:
        raise SystemExit("The server's slots have a form that is not known here (a window, or several caches).")
    if len(found) != 2 * len(keys):
        raise SystemExit(f"The server's model has {len(found) // 2} layers, and this is of {len(keys)}.")
    for (at, kind, size, is_turned), new in zip(found, [*keys, *values], strict=True):
        if kind not in FLOATS:
            raise SystemExit("The server's cache is quantised: start it with -ctk f32 -ctv f32, or f16.")
        made = (new.T if is_turned else new).astype(np.float32).astype(FLOATS[kind]).tobytes()
        if len(made) != size:
            raise SystemExit(f"The server's model has other widths: {size} bytes a layer, where {len(made)} are given.")
        out[at : at + size] = made
    return bytes(out)


def place(url: str, slots: str | pathlib.Path, folder: pathlib.Path, slot: int = 0) -> list[int]:
    """Put the context into a slot: the server saves one of as many tokens, and restores it patched."""
    keys, values = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("keys", "values"))
    stand_ins = {"prompt": [STAND_IN] * keys.shape[1], "n_predict": 0, "id_slot": slot, "cache_prompt": True}
    post(url, "/completion", stand_ins)
    post(url, f"/slots/{slot}?action=save", {"filename": FILE})
    path = pathlib.Path(slots) / FILE
    path.write_bytes(patched(path.read_bytes(), keys, values))
    post(url, f"/slots/{slot}?action=restore", {"filename": FILE})
    return [STAND_IN] * keys.shape[1]


def ask(url: str, stand_ins: list[int], text: str | list[int], slot: int = 0, **options: Any) -> Any:
    """The server's answer to a text, or to its ids, behind the context in that slot."""
    ids = text if isinstance(text, list) else [text]
    prompt = [*stand_ins, *START, *ids]
    return post(url, "/completion", {"prompt": prompt, "id_slot": slot, "cache_prompt": True, **options})


if __name__ == "__main__":
    url, slots, text = sys.argv[1:]
    stand_ins = place(url, slots, pathlib.Path(__file__).parent)
    print(ask(url, stand_ins, text, n_predict=64, temperature=0)["content"])
