"""The dashboards. `python -m deploy.grafana.dashboards` writes them to dashboards/, where Grafana loads them."""

from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, QueryVariable, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from deploy.grafana import acceptance, serving
from deploy.grafana.panels import ALL_NAMESPACES, DATASOURCE, NAMESPACE

FOLDER = Path(__file__).parent / "dashboards"
TAG = "specpair"
DASHBOARDS = {"acceptance": acceptance.panels, "serving": serving.panels}


def build(name: str) -> model.Dashboard:
    """A dashboard by its name. The link on its tag leads to the other dashboards, with the same time and namespace."""
    board = (
        Dashboard(f"specpair: {name}")
        .uid(f"specpair-{name}")
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-15m", "now")
        .refresh("5s")
        .link(
            DashboardLink("specpair").type(DashboardLinkType.DASHBOARDS).tags([TAG]).keep_time(True).include_vars(True)
        )
        .with_variable(_namespaces())
    )
    for panel in DASHBOARDS[name]():
        board = board.with_row(panel) if isinstance(panel, Row) else board.with_panel(panel)
    built = board.build()
    for number, panel in enumerate(built.panels or (), start=1):
        panel.id_val = number
    return built


def _namespaces() -> QueryVariable:
    """The namespaces to show: all, unless some are chosen."""
    return (
        QueryVariable(NAMESPACE)
        .label("Namespace")
        .description("Namespaces of Kubernetes whose pairs are added up. Elsewhere there is none to choose.")
        .datasource(DATASOURCE)
        .query(f"label_values(specpair_build_info, {NAMESPACE})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(ALL_NAMESPACES)
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def as_json(name: str) -> str:
    """The text of a dashboard's file."""
    return JSONEncoder(sort_keys=True, indent=2).encode(build(name)) + "\n"


def write(folder: Path = FOLDER) -> None:
    """Writes a file for each dashboard."""
    folder.mkdir(exist_ok=True)
    for name in DASHBOARDS:
        (folder / f"{name}.json").write_text(as_json(name))


if __name__ == "__main__":
    write()
