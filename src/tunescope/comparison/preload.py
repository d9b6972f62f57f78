"""What worker processes need, for the process that they are forks of: imported there, and nowhere else."""

from tunescope.system import forkserver

forkserver.calm()
import tunescope.comparison.workers  # noqa: E402, F401
