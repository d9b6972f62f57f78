"""Which plans can be asked: every field held against what it takes, before anything is loaded."""

from collections.abc import Sequence

from tunescope.errors import UserError
from tunescope.models.load_options import QUANTISED, check_loading
from tunescope.system.plugins import one_of
from tunescope.tasks.prompts.day import day_named
from tunescope.trial.plan import MOST, PARALLEL, Plan
from tunescope.trial.rates import check_beyond, check_halving
from tunescope.trial.train.settings import OPTIMIZERS, PRECISIONS, SCHEDULES


def check(plan: Plan) -> Plan:
    """The plan, if every field can be used.

    Raises:
        UserError: names the option, what it was given and what it takes.
    """
    settings = plan.settings
    for name in ("steps", "batch_size", "accumulate", "eval_every", "patience"):
        _within(name, getattr(settings, name), 1)
    if settings.accumulate > settings.batch_size:
        raise UserError(
            f"--accumulate {settings.accumulate} is more parts than a batch of {settings.batch_size} has rows; "
            f"give at most {settings.batch_size}."
        )
    _within("trials", plan.trials, 1, MOST)
    _within("threads", plan.threads, 1)
    _within("together", plan.together, 0)
    _within("processes", plan.processes, 0)
    one_of("parallel", plan.parallel, PARALLEL)
    _check_memory(plan)
    for name in ("k_shot", "longest_field"):
        if getattr(plan, name) is not None:
            _within(name, getattr(plan, name), 1)
    for budget in plan.budgets:
        _within("budget", budget, 1, 10**12)
    if plan.halving:
        check_halving(plan.race)
    _within("beyond", plan.past, 0, MOST)
    if plan.beyond:
        check_beyond(plan.race)
    if plan.dev_share is not None and not 0 < plan.dev_share <= 1:
        raise UserError(f"--dev-share {plan.dev_share:g} is a share of a run's passes above 0, at most 1, such as 0.2.")
    _check_rates(plan.rates)
    if not 0 <= settings.warmup < 1:
        raise UserError(f"--warmup {settings.warmup:g} is a share of the steps; give 0 or more and less than 1.")
    if not 0 < settings.clip < float("inf") or not 0 <= settings.weight_decay < float("inf"):
        raise UserError("--clip must be above 0 and --weight-decay at least 0, and finite; --clip 1e9 cuts nothing.")
    for name, allowed in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("precision", PRECISIONS)):
        one_of(name, getattr(settings, name), allowed)
    check_seeds(plan.seeds)
    _check_looks(plan)
    if plan.day != "":
        day_named(plan.day)
    return plan


def _check_memory(plan: Plan) -> None:
    check_loading(plan.load, plan.device_map)
    if plan.processes > 1 and plan.device.startswith("cuda:"):
        raise UserError(
            f"--device {plan.device} is one GPU, and with --processes each has one of its own. Type: --device cuda"
        )
    if plan.processes > 1 and plan.device_map:
        raise UserError(
            "--device-map auto is for one process with several GPUs; with --processes, --parallel fsdp shards."
        )
    if plan.processes > 1 and plan.load in QUANTISED and plan.parallel == "fsdp":
        raise UserError(f"--load {plan.load} keeps weights that FSDP2 cannot shard. Type: --parallel ddp")
    if plan.processes > 1 and plan.halve_batches and plan.parallel == "fsdp":
        raise UserError(
            "--batch-size auto wants a model that each process has whole: of a sharded one those with memory left wait "
            "within a layer for the one without. Type: --batch-size 16 --accumulate 4, or --parallel ddp"
        )


def _check_rates(rates: Sequence[float]) -> None:
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise UserError(f"--lr {rate:g} is not a learning rate; give numbers above 0, such as --lr 1e-3 3e-3.")
    twice = next((rate for rate in rates if rates.count(rate) > 1), None)
    if twice is not None:
        raise UserError(f"--lr has {twice:g} twice; give each learning rate once.")


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises UserError for none, for one twice, and for numbers that are no seeds."""
    if not seeds or len(seeds) > MOST or len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**31 for seed in seeds):
        given = " ".join(map(str, seeds[:MOST])) or "0"
        raise UserError(
            f"--seeds {given}: give how many, 1 or more, or which: two or more different "
            f"whole numbers from 0 to 2147483647; at most {MOST}."
        )


def _check_looks(plan: Plan) -> None:
    if not 0 < plan.margin < 1:
        raise UserError(f"--margin {plan.margin:g} is a share of the metric's scale above 0 and below 1, such as 0.02.")
    if plan.minutes is not None and not 0 < plan.minutes < float("inf"):
        raise UserError(f"--minutes {plan.minutes:g} is no time; give more than 0, or leave it out.")
    if plan.max_seeds is None:
        return
    if plan.pilot_of is not None:
        raise UserError("--max-seeds adds seeds to a comparison, and a pilot has one seed: leave it out.")
    _within("max_seeds", plan.max_seeds, 1, MOST)
    if plan.max_seeds < len(plan.seeds):
        raise UserError(
            f"--max-seeds {plan.max_seeds} is below the {len(plan.seeds)} seeds that every arm has; "
            f"give {len(plan.seeds)} or more, or fewer --seeds."
        )
    if plan.k_shot is not None:
        raise UserError(
            "--max-seeds adds seeds later, and with --k-shot every seed draws its rows at first: leave it out, and "
            "give compare more --seeds (of a run that has begun with fewer, in a new folder)."
        )


def _within(name: str, value: int, least: int, most: int = 10**9) -> None:
    option = f"--{name.replace('_', '-')}"
    if not float(value).is_integer():
        raise UserError(f"{option} {value} is no whole number; give one of {least} or more.")
    if value < least:
        raise UserError(f"{option} {value} is too small; give a whole number of {least} or more.")
    if value > most:
        raise UserError(f"{option} {value} is too large; give a whole number of at most {most}.")
