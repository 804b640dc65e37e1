"""`python -m specpair.cli`: the command without an installed script."""

from specpair.cli.main import app

app(prog_name="specpair")
