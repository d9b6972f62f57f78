"""What attaching could leave behind on a model."""

from typing import Any

import torch


def trace(model: Any) -> dict[str, Any]:
    """Everything that attaching could leave behind."""
    modules = dict(model.named_modules())
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "objects": [(name, id(p), p.requires_grad) for name, p in model.named_parameters(remove_duplicate=False)],
        "grads": [name for name, p in model.named_parameters() if p.grad is not None],
        "buffers": [(name, id(value)) for name, value in model.named_buffers()],
        "attributes": {name: set(vars(module)) for name, module in modules.items()},
        "hooks": {
            (name, kept): len(getattr(module, kept))
            for name, module in modules.items()
            for kept in vars(module)
            if kept.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
        },
        "attention": {
            name: module.config._attn_implementation for name, module in modules.items() if hasattr(module, "config")
        },
        "config": model.config.to_dict(),
        "modes": {name: module.training for name, module in modules.items()},
    }


def assert_no_trace(model: Any, before: dict[str, Any]) -> None:
    now = trace(model)
    for name, value in before.pop("state").items():
        assert torch.equal(value, now["state"][name]), name
    del now["state"]
    assert not any(attribute.startswith("_tunescope") for found in now["attributes"].values() for attribute in found)
    assert now == before
