"""What worker processes need, for the process that they are forks of: imported there, and nowhere else."""

from tunescope.comparing import ahead

ahead.calm()
import tunescope.comparing.pool  # noqa: E402, F401
