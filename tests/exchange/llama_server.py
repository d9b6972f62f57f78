"""A llama.cpp server, as it comes in a wheel, in a process of its own

    python llama_server.py MODEL.gguf SLOTS TYPE [LORA.gguf ...]

Its address is the first line of what it prints; it ends when its input does. TYPE: f32 (exact), or f16 with flash
attention (as servers are usually run).
"""

import os
import socket
import sys

import xllamacpp

model, slots, kind, *loras = sys.argv[1:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
asked = xllamacpp.CommonParams()
asked.model.path, asked.slot_save_path, asked.port = model, f"{slots}/", port
asked.n_ctx, asked.n_parallel, asked.n_gpu_layers, asked.warmup, asked.cpuparams.n_threads = 256, 1, 0, False, 1
asked.cache_type_k = asked.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kind.upper()}")
attention = xllamacpp.llama_flash_attn_type
asked.flash_attn_type = (
    attention.LLAMA_FLASH_ATTN_TYPE_DISABLED if kind == "f32" else attention.LLAMA_FLASH_ATTN_TYPE_ENABLED
)
for path in loras:
    asked.lora_adapters = [*asked.lora_adapters, xllamacpp.CommonAdapterLoraInfo(path, 1.0)]
server = xllamacpp.Server(asked)
print(f"\naddress {server.listening_address}", flush=True)
sys.stdin.read()
os._exit(0)
