"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Such as `0.1.0`; `unknown` in a checkout that is not installed."""
    try:
        return version("specpair")
    except PackageNotFoundError:
        return "unknown"
