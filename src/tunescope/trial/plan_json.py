"""A plan as config.json has it, and back: checked, so that a file that was changed by hand asks nothing impossible."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.train.settings import Settings


def to_json(plan: Plan) -> dict[str, Any]:
    """As config.json has it: what a later version takes where nothing is said does not change a run."""
    return asdict(plan) | {"beyond": plan.past}


def from_json(config: Mapping[str, Any], source: Path) -> Plan:
    """The plan in a config.json, checked; anything unknown or of a wrong type is refused by name."""
    from pydantic import TypeAdapter, ValidationError

    names = {entry.name for entry in fields(Plan)}
    config = {"beyond": 0, "apart": False, **config}  # of a run begun when nothing was tried past an end, or apart
    missing = next((name for name in ("model", "data", "task") if name not in config), None)
    if missing is not None:
        raise UserError(f"{source}: '{missing}' cannot be used (Field required); start the comparison anew.")
    settings = config.get("settings") or {}
    known = {entry.name for entry in fields(Settings)}
    if (wrong := next((name for name in settings if name not in known), None)) is not None:
        raise UserError(f"{source}: 'settings.{wrong}' cannot be used (there is none); start the comparison anew.")
    try:
        plan = TypeAdapter(Plan).validate_python({key: config[key] for key in config if key in names})
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{source}: '{where}' cannot be used ({first['msg']}); start the comparison anew.") from None
    return check(plan)
