"""Files changed at random, from a seeded draw: bytes, values of JSON, and the headers of safetensors files."""

import gzip
import json
from functools import reduce

HOSTILE = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 10**6, 10**30, -0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "2", "nan", "\x1b[2J\u202e", "../../../etc/passwd", "/etc/passwd", "x" * 100_000, "evil.Evil", "\ud83d"),
    *([], [1], ["x"], [[]], {}, {"a": 1}, {"": None}),
)
ADDED = {
    "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]},
    "trust_remote_code": True,
    "quantization_config": {"quant_method": "evil"},
    "tokenizer_class": "Evil",
    "__class__": "evil.Evil",
    "extra": 1,
}
PIECES = (
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"NaN",
    b"1e999",
    b"-",
    b"{",
    b"}",
    b'"',
    b"\n",
    b"\r",
    b",",
    b"\t",
    b"\\u0000",
)
LONG = (b"[" * 20_000, b"9" * 5_000, b"x" * 100_000)


def in_bytes(data, draw):
    """A bit, a byte, a slice: changed, cut out, doubled or put in."""
    at, other = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    near = min(len(data), at + draw.randint(1, 8))
    kind = draw.randrange(8)
    if kind == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[other:]
    if kind == 3:
        return data[:other] + data[at:near] + data[other:]
    if kind == 4:
        return data[:at] + draw.randbytes(near - at) + data[near:]
    if kind == 5:
        return data[:at] + draw.choice(LONG) + data[at:]
    return data[:at] + draw.choice(PIECES) + (data[at:] if kind == 6 else data[near:])


def in_json(value, draw):
    """One value replaced, or a key taken out, renamed or put in; the value that is given stays as it is."""
    made = json.loads(json.dumps(value))
    paths = list(_paths(made))
    *outer, last = draw.choice(paths)
    holder = reduce(lambda inner, key: inner[key], outer, made)
    kind = draw.randrange(8)
    if kind == 0:
        del holder[last]
    elif kind == 1 and isinstance(holder, dict):
        holder[f"{last}{draw.choice(['s', '_', '0'])}"] = holder.pop(last)
    elif kind == 2 and isinstance(made, dict):
        name = draw.choice(list(ADDED))
        made[name] = ADDED[name]
    elif kind == 3 and isinstance(holder[last], int | float) and not isinstance(holder[last], bool):
        holder[last] = draw.choice([holder[last] + 1, -holder[last], holder[last] * 10, str(holder[last])])
    else:
        holder[last] = draw.choice(HOSTILE)
    return made


def in_file(name, data, draw):
    """The file's bytes changed, in one of the ways that files of its kind have."""
    if name.endswith(".gz") and draw.random() < 0.5:
        return gzip.compress(in_bytes(gzip.decompress(data), draw))
    if name.endswith(".json") and draw.random() < 0.7:
        return json.dumps(in_json(json.loads(data), draw)).encode()
    if name.endswith(".safetensors") and draw.random() < 0.5:
        size = int.from_bytes(data[:8], "little")
        header = json.dumps(in_json(json.loads(data[8 : 8 + size]), draw)).encode()
        return len(header).to_bytes(8, "little") + header + data[8 + size :]
    return in_bytes(data, draw)


def _paths(value, path=()):
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from _paths(one, (*path, key))
