"""What holds for every test."""

from hypothesis import settings

pytest_plugins = ["tests.needs"]

# Times on a busy machine say nothing about the code; pytest-timeout catches what hangs.
settings.register_profile("specpair", deadline=None)
settings.load_profile("specpair")
