"""A trained DoRA is a LoRA with a gain, as the docstring of `LoRA` says it; peft's own layer is the oracle."""

import peft
import torch
from torch import nn

import tunescope as ts


@torch.no_grad()
def test_a_dora_is_gain_on_the_map_gain_in_b_and_what_the_bias_lacks() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(11, 13, dtype=torch.float64), torch.randn(3, 5, 11, dtype=torch.float64)
    how = peft.LoraConfig(r=2, lora_alpha=3, use_dora=True, target_modules=["0"])
    model = peft.get_peft_model(nn.Sequential(linear), how, autocast_adapter_dtype=False).eval()
    made = {name.split(".")[-3]: value for name, value in model.named_parameters()}
    a, b, magnitude = (made[name].normal_() for name in ("lora_A", "lora_B", "lora_magnitude_vector"))

    gain = magnitude / torch.linalg.norm(linear.weight + 3 / 2 * b @ a, dim=1)
    tensors = {"a": a, "b": gain[:, None] * b, "gain": gain, "shift": (1 - gain) * linear.bias}
    got = ts.LoRA(rank=2, alpha=3.0, gain=True).apply(tensors, x, linear(x))

    torch.testing.assert_close(got, model(x), rtol=0, atol=1e-12)
