"""A piece of a comparison: an arm at one seed and its learning rates; its id is the hash of all that it depends on."""

from dataclasses import asdict, dataclass, replace

from tunescope import __version__
from tunescope.methods.deltas.head import Head
from tunescope.system import run_folder
from tunescope.trial.arm import Ready
from tunescope.trial.bench import Bench
from tunescope.trial.dev_rows import early_size
from tunescope.trial.identity import asked_with, encoder_print


@dataclass(frozen=True)
class Job:
    """An arm at one seed and learning rate.

    test: also score the test set, which only chosen runs may. until: the step to pause at, for now. scored: on the
    development rows; what is not is told apart by its training loss alone.
    """

    id: str
    arm: Ready
    rates: tuple[float, ...]  # of each spec
    seed: int
    steps: int  # at most
    test: bool = False
    until: int | None = None
    scored: bool = True

    @property
    def rate(self) -> float | None:
        """The rate of the first method that trains: the one to show."""
        return next((rate for rate, trains in zip(self.rates, self.arm.trains, strict=False) if trains), None)

    @property
    def each_rate(self) -> list[float]:
        """The rate of every method that is trained, but for the head's beside another."""
        own = [self.rates[part] for part in self.arm.parts] if self.rates else []
        return own or [rate for rate in (self.rate,) if rate is not None]

    @property
    def head_rate(self) -> float | None:
        """The rate of a head beside what is trained; None where there is none, or the head stands alone."""
        trained = zip(self.rates, self.arm.specs, self.arm.trains, strict=False)
        heads = [rate for rate, spec, trains in trained if trains and isinstance(spec, Head)]
        return heads[0] if heads and self.arm.parts else None


def job(
    bench: Bench, arm: Ready, rates: tuple[float, ...], seed: int, *, test: bool = False, steps: int | None = None
) -> Job:
    """The job, its id the hash of all that its numbers depend on; `steps` where they are not the plan's."""
    settings = replace(bench.plan.settings, steps=steps or bench.plan.settings.steps)
    depends_on = {
        "arm": arm.label,
        "rates": rates,
        "seed": seed,
        "settings": asdict(settings),
        "task": bench.task.describe(),
        "data": dict(bench.sha256),
        "base": bench.fingerprint,
        **asked_with(bench),
        "device": bench.device.type,
        "threads": bench.plan.threads,
        "tunescope": __version__,
    } | ({} if bench.plan.k_shot is None else {"k_shot": bench.plan.k_shot})
    if arm.trained and (early := early_size(bench.at(seed), settings.steps)) is not None:
        depends_on["early_rows"] = early
    if arm.demos and arm.demos.encoder:
        depends_on["encoder"] = encoder_print(bench, arm.demos.encoder)
    if arm.search is not None and (reads := arm.search.reads()):
        depends_on["reads"] = dict(reads)
    return Job(run_folder.identity(depends_on), arm, rates, seed, settings.steps, test)
