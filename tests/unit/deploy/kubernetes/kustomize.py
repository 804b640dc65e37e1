"""Renders what deploy/kubernetes uses of kustomize, so that tests need no binary: resources, components, namespace,
labels, images, ConfigMaps from files, and patches of both kinds. What it does not know is an error, not left out."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
KNOWN = {
    "apiVersion",
    "kind",
    "namespace",
    "labels",
    "resources",
    "components",
    "images",
    "patches",
    "configMapGenerator",
}
CLUSTER_WIDE = {"Namespace"}
NATIVE = re.compile(r"^(v1|apps/.*|policy/.*|autoscaling/.*|networking\.k8s\.io/.*)$")
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
}
"""Lists of a pod whose entries a strategic merge patch finds by a key; others are replaced."""


class KustomizeError(Exception):
    """Kustomize would refuse this, or the renderer does not know it."""


def render(folder: Path) -> list[Object]:
    """The objects that `kubectl kustomize FOLDER` prints. Raises KustomizeError."""
    return _rendered(folder, [])


def _rendered(folder: Path, objects: list[Object]) -> list[Object]:
    """`objects` are those that a component changes."""
    settings = _settings(folder)
    for entry in settings.get("resources", ()):
        path = (folder / entry).resolve()
        objects += render(path) if path.is_dir() else list(_documents(path, folder))
    objects += [_config_map(folder, entry) for entry in settings.get("configMapGenerator", ())]
    _check_names(objects)
    for entry in settings.get("components", ()):
        path = (folder / entry).resolve()
        if _settings(path)["kind"] != "Component":
            raise KustomizeError(f"{entry} is no component")
        objects = _rendered(path, objects)
    for patch in settings.get("patches", ()):
        objects = _patched(folder, patch, objects)
    for made in objects:
        _transform(made, settings)
    _check_names(objects)
    return objects


def _settings(folder: Path) -> Object:
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := settings.keys() - KNOWN:
        raise KustomizeError(f"{folder}: {', '.join(sorted(unknown))}")
    return settings


def _documents(path: Path, folder: Path) -> Iterator[Object]:
    if folder.resolve() not in path.parents:
        raise KustomizeError(f"{path} is outside {folder}: kustomize reads files only below it")
    yield from copy.deepcopy([made for made in yaml.safe_load_all(path.read_text()) if made is not None])


def _config_map(folder: Path, entry: Object) -> Object:
    options = entry["options"]
    if not options.get("disableNameSuffixHash"):
        raise KustomizeError(f"{entry['name']}: the hash of a ConfigMap is not rendered")
    paths = [folder / file for file in entry["files"]]
    if any(folder.resolve() not in path.resolve().parents for path in paths):
        raise KustomizeError(f"{entry['name']}: kustomize reads files only below {folder}")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": entry["name"], "labels": dict(options.get("labels", {}))},
        "data": {path.name: path.read_text() for path in paths},
    }


def name_of(made: Object) -> str:
    """Kind and name."""
    return f"{made['kind']}/{made['metadata']['name']}"


def _check_names(objects: list[Object]) -> None:
    names = [name_of(made) for made in objects]
    if twice := {name for name in names if names.count(name) > 1}:
        raise KustomizeError(f"more than once: {', '.join(sorted(twice))}")


def _transform(made: Object, settings: Object) -> None:
    if (namespace := settings.get("namespace")) and made["kind"] not in CLUSTER_WIDE:
        made["metadata"]["namespace"] = namespace
    for entry in settings.get("labels", ()):
        made["metadata"].setdefault("labels", {}).update(entry["pairs"])
        if entry.get("includeTemplates") and made["kind"] == "Deployment":
            made["spec"]["template"]["metadata"]["labels"].update(entry["pairs"])
    for image in settings.get("images", ()):
        for container in containers(made):
            name = container["image"].partition(":")[0]
            if name == image["name"]:
                container["image"] = f"{image.get('newName', name)}:{image['newTag']}"


def containers(value: Any) -> Iterator[Object]:
    """All containers in an object, wherever its templates are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("containers", "initContainers"):
                yield from inner
            else:
                yield from containers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from containers(inner)


def _patched(folder: Path, entry: Object, objects: list[Object]) -> list[Object]:
    text = (folder / entry["path"]).read_text() if "path" in entry else entry["patch"]
    patch = yaml.safe_load(text)
    if isinstance(patch, list):
        for made in objects:
            if _is_meant(made, entry["target"]):
                for operation in patch:
                    _operate(made, operation)
        return objects
    if "target" in entry:  # kustomize takes no offence if there is none
        meant = [made for made in objects if _is_meant(made, entry["target"])]
    else:
        meant = [made for made in objects if name_of(made) == name_of(patch)]
    if not meant and "target" not in entry:
        raise KustomizeError(f"{name_of(patch)}: nothing to patch")
    if patch.get("$patch") == "delete":
        return [made for made in objects if made not in meant]
    for made in meant:
        _merge(made, patch, bool(NATIVE.match(made["apiVersion"])))
    return objects


def _is_meant(made: Object, target: Object) -> bool:
    parts = {"kind": made["kind"], "name": made["metadata"]["name"]}
    if unknown := target.keys() - parts.keys():
        raise KustomizeError(f"target: {', '.join(sorted(unknown))}")
    return all(re.fullmatch(pattern, parts[key]) for key, pattern in target.items())


def _operate(made: Any, operation: Object) -> None:
    """One operation of JSON Patch, RFC 6902."""
    *path, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    where = made
    for part in path:
        where = where[int(part)] if isinstance(where, list) else where[part]
    kind, value = operation["op"], copy.deepcopy(operation.get("value"))
    if kind == "test":
        if where[int(last) if isinstance(where, list) else last] != value:
            raise KustomizeError(f"{operation['path']} is not {value}")
    elif isinstance(where, list):
        if kind == "add":
            where.insert(len(where) if last == "-" else int(last), value)
        elif kind == "replace":
            where[int(last)] = value
        elif kind == "remove":
            del where[int(last)]
        else:
            raise KustomizeError(f"{kind} in a list")
    elif kind == "add" or (kind == "replace" and last in where):
        where[last] = value
    elif kind == "remove" and last in where:
        del where[last]
    else:
        raise KustomizeError(f"{kind} {operation['path']}: there is no such field")


def _merge(made: Object, patch: Object, is_native: bool) -> None:
    """A strategic merge patch; lists of custom resources are replaced."""
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            _merge(made[key], value, is_native)
        elif isinstance(value, list) and isinstance(made.get(key), list) and is_native and key in MERGE_KEYS:
            _merge_list(made[key], value, MERGE_KEYS[key])
        else:
            made[key] = copy.deepcopy(value)


def _merge_list(made: list[Object], patch: list[Object], key: str) -> None:
    for entry in patch:
        found = [old for old in made if old[key] == entry[key]]
        if entry.get("$patch") == "delete":
            if not found:
                raise KustomizeError(f"{entry[key]}: nothing to delete")
            made.remove(found[0])
        elif found:
            _merge(found[0], entry, True)
        else:
            made.append(copy.deepcopy(entry))
