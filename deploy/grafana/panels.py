"""The kinds of panels of the dashboards."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import (
    HeatmapCellLayout,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panels = Sequence[Builder[model.Panel] | dashboard.Row]

DATASOURCE = DataSourceRef(type_val="prometheus", uid="specpair-prometheus")
"""The uid is fixed by provisioning/datasources/prometheus.yml."""

NAMESPACE = "namespace"
"""The label that keeps pairs apart in Kubernetes, as in the alerts, and the variable that chooses among its values."""
ALL_NAMESPACES = ".*"
"""Matches series without the label as well: Compose gives none."""
_SELECTOR = re.compile(r"\b((?:specpair|grpc_server|process)_\w+|up)\b(?:{([^}]*)})?")
"""A metric of a query, with its conditions."""

COLUMNS = 24
"""Columns of Grafana's grid; the unit of the widths below."""
LINE_FILL = 10
STACK_FILL = 60

RATIO = "percentunit"
SECONDS = "s"
NUMBER = "short"
PER_SECOND = "suffix:/s"
TIMES = "suffix:x"
BYTES = "bytes"


class Query(NamedTuple):
    """One query of a panel."""

    expr: str
    """PromQL of any namespace; may contain Grafana's $__rate_interval."""
    legend: str = ""
    """A template of labels, such as `{{rule}}`."""
    is_instant: bool = False
    """Evaluated only at the end of the time range: a series without a value there has none."""


def number(title: str, description: str, query: Query, *, unit: str = NUMBER, decimals: int = 2) -> stat.Panel:
    """One number, the latest value, over a graph of its past unless the query is instant."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .decimals(decimals)
        .no_value("none at present" if query.is_instant else "none yet")
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(query, "A"))
        .span(COLUMNS // 6)
        .height(4)
    )


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = NUMBER,
    highest: float | None = None,
    is_stacked: bool = False,
) -> timeseries.Panel:
    """Lines over time, from zero up; stacked if they are parts of a whole."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .fill_opacity(STACK_FILL if is_stacked else LINE_FILL)
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL if is_stacked else StackingMode.NONE))
        .show_points(VisibilityMode.AUTO)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .span(COLUMNS // 2)
        .height(8)
    )
    if highest is not None:
        panel = panel.max(highest)
    for index, query in enumerate(queries):
        panel = panel.with_target(_target(query, chr(ord("A") + index)))
    return panel


def buckets(title: str, description: str, metric: str, *, unit: str) -> heatmap.Panel:
    """A heat map of a histogram: observations per bucket, over time."""
    query = Query(f"sum by (le) (increase({metric}_bucket[$__rate_interval]))", "{{le}}")
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .rows_frame(heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.LE))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .show_legend()
        .with_target(_target(query, "A").format(PromQueryFormat.HEATMAP))
        .span(COLUMNS // 2)
        .height(8)
    )


def bars(title: str, description: str, query: Query, *, unit: str = RATIO, highest: float = 1.0) -> bargauge.Panel:
    """One bar for each series, by its latest value."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .max(highest)
        .orientation(VizOrientation.VERTICAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(query, "A"))
        .span(COLUMNS // 2)
        .height(8)
    )


def row(title: str) -> dashboard.Row:
    """A heading over the panels that follow."""
    return dashboard.Row(title)


def quantiles(metric: str) -> tuple[Query, ...]:
    """The median, the 95th and the 99th percentile of a histogram."""
    return tuple(
        Query(f"histogram_quantile({quantile}, sum by (le) (rate({metric}_bucket[$__rate_interval])))", name)
        for quantile, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
    )


def mean(metric: str, by: str = "", legend: str = "mean") -> Query:
    """The mean of a histogram's observations, for each value of the label `by`."""
    grouping = f"by ({by}) " if by else ""
    total, count = (f"sum {grouping}(rate({metric}_{part}[$__rate_interval]))" for part in ("sum", "count"))
    return Query(f"{total} / ({count} > 0)", legend)


def of_namespace(expr: str) -> str:
    """The same query of the chosen namespaces alone."""
    return _SELECTOR.sub(_with_namespace, expr)


def _with_namespace(selector: re.Match[str]) -> str:
    conditions = [f'{NAMESPACE}=~"${NAMESPACE}"', *([selector[2]] if selector[2] else [])]
    return f"{selector[1]}{{{', '.join(conditions)}}}"


def _target(query: Query, ref_id: str) -> prometheus.Dataquery:
    made = (
        prometheus.Dataquery()
        .expr(of_namespace(query.expr))
        .legend_format(query.legend or "__auto")
        .ref_id(ref_id)
        .datasource(DATASOURCE)
    )
    return made.instant() if query.is_instant else made.range()
