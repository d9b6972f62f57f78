"""The version of a package, for what is kept beside a result."""

from importlib.metadata import PackageNotFoundError, version

from tunescope import __version__


def package_version(name: str) -> str:
    """`unknown` where it has no metadata; tunescope's own is known also from a source folder that was not installed."""
    if name == "tunescope":
        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
