"""Endpoints for operators and clients: models, version, health, metrics."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.convertors import PathConvertor, register_url_convertor

from coordinator.http.descriptions import EXPOSED, HEALTH
from coordinator.http.failures import retry_headers
from coordinator.http.front_end import FrontEnd
from coordinator.http.health import health_of
from coordinator.http.models import model_document, model_documents
from specpair.server.metrics_text import render_in_turns
from specpair.version import package_version

router = APIRouter()


class ModelName(PathConvertor):
    """The rest of a path, which a name with slashes is; but not of one that ends without a name."""

    regex = ".+"


register_url_convertor("model_name", ModelName())


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    """The one model that is served, the target, by each of its names."""
    return {"object": "list", "data": model_documents(_front_end(request).serving)}


@router.get("/v1/models/{model:model_name}")
async def retrieve_model(request: Request, model: str) -> dict[str, Any]:
    """The served model, by one of its names."""
    return model_document(model, _front_end(request).serving)


@router.get("/version")
async def show_version() -> dict[str, str]:
    """The version of specpair."""
    return {"version": package_version()}


@router.get("/health", responses=HEALTH)
async def check_health(request: Request) -> Response:
    """200 while requests are served; 503 before that, while no target is connected, and while the process stops."""
    report = health_of(_front_end(request))
    status = 200 if report.is_ready else 503
    return JSONResponse(report.document(), status, headers=retry_headers(status))


@router.get("/metrics", response_class=PlainTextResponse, responses=EXPOSED)
async def show_metrics(request: Request) -> Response:
    """The metrics for Prometheus; OpenMetrics, with exemplars, for clients that accept it."""
    text, content_type = await render_in_turns(_front_end(request).registry, request.headers.get("accept", ""))
    return Response(text, headers={"content-type": content_type})


def _front_end(request: Request) -> FrontEnd:
    return request.app.state.front_end
