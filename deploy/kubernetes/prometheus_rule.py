"""The rules of ../prometheus/rules.yml as an object of the Prometheus operator; kustomize cannot wrap a file.
`python -m deploy.kubernetes.prometheus_rule` writes it."""

from pathlib import Path

DEPLOY = Path(__file__).parents[1]
RULES = DEPLOY / "prometheus" / "rules.yml"
OBJECT = DEPLOY / "kubernetes" / "components" / "monitoring" / "prometheus-rule.yaml"
HEAD = """\
# Written by python -m deploy.kubernetes.prometheus_rule from deploy/prometheus/rules.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: specpair
spec:
"""


def as_yaml() -> str:
    """The text of the object's file."""
    lines = RULES.read_text().splitlines()
    groups = lines[lines.index("groups:") :]
    return HEAD + "".join(f"  {line}".rstrip() + "\n" for line in groups)


if __name__ == "__main__":
    OBJECT.write_text(as_yaml())
