"""What the overlays render to, and what our services are in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.unit.deploy.kubernetes.kustomize import Object, containers, render

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
SERVICES = ("coordinator", "draft", "target")
SECURED_OVERLAYS = ("secured", "sharded-secured")


@cache
def rendered(overlay: str) -> list[Object]:
    """All objects of an overlay. Nobody changes them."""
    return render(FOLDER / "overlays" / overlay)


def of_kind(overlay: str, kind: str) -> dict[str, Object]:
    """By name."""
    return {made["metadata"]["name"]: made for made in rendered(overlay) if made["kind"] == kind}


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A template of a pod that runs one of our services, alone in it."""

    overlay: str
    owner: str
    """Name of the Deployment or LeaderWorkerSet."""
    is_worker: bool
    """It computes for the leader of its group, and serves nothing."""
    labels: dict[str, str]
    spec: Object

    @property
    def container(self) -> Object:
        """Its only one."""
        (only,) = containers(self.spec)
        return only

    @property
    def service(self) -> str:
        """Which of the three it is."""
        return self.container["name"]

    @property
    def variables(self) -> dict[str, Any]:
        """What is set in the manifest; None for what is in a secret."""
        return {entry["name"]: entry.get("value") for entry in self.container["env"]}

    @property
    def flags(self) -> list[str]:
        """What follows `specpair serve SERVICE`."""
        words = self.container["args"]
        at = words.index("serve")
        assert words[at + 1] == self.service
        return words[at + 2 :]

    def __str__(self) -> str:
        return f"{self.overlay}: {self.owner}{', worker' if self.is_worker else ''}"


def pods(overlay: str) -> Iterator[Pod]:
    """Every template of a pod in an overlay."""
    for made in rendered(overlay):
        if made["kind"] == "Deployment":
            templates = {"template": made["spec"]["template"]}
        elif made["kind"] == "LeaderWorkerSet":
            inner = made["spec"]["leaderWorkerTemplate"]
            templates = {name: inner[name] for name in ("leaderTemplate", "workerTemplate")}
        else:
            assert not list(containers(made)), f"{made['kind']} is unknown here"
            continue
        for name, template in templates.items():
            yield Pod(
                overlay=overlay,
                owner=made["metadata"]["name"],
                is_worker=name == "workerTemplate",
                labels=template["metadata"]["labels"],
                spec=template["spec"],
            )


PODS = [pod for overlay in OVERLAYS for pod in pods(overlay)]
SERVING = [pod for pod in PODS if not pod.is_worker]
