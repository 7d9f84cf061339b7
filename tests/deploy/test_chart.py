"""The Helm chart: it renders to what Kubernetes takes, its parts fit together, nonsense is refused with a reason."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeAlias

import kubernetes_validate
import pytest
import yaml

from compaction_jobs.surroundings import JOB_NAMES
from ingest_api.app import create_app
from ingest_api.settings import LoadedSettings, load_settings
from tests.deploy.tools import DEPLOY, ROOT, program, refusal_of, said_by

CHART = DEPLOY / "helm" / "lakelog"
KUBERNETES = "1.33"
Manifest: TypeAlias = dict[str, Any]

EVERYTHING = {
    "warehouse": "s3://bucket/topics",
    "replicas": "3",
    "store.existingSecret": "lakelog-store",
    "ingress.enabled": "true",
    "ingress.host": "lakelog.example.com",
    "ingress.tlsSecret": "tls",
    "monitoring.serviceMonitor.enabled": "true",
    "monitoring.alerts.enabled": "true",
    "monitoring.dashboard.enabled": "true",
    "networkPolicy.enabled": "true",
    "networkPolicy.from[0].podSelector.matchLabels.app": "shop",
}
ON_A_VOLUME = {"persistence.enabled": "true"}


def helm(*words: str) -> list[str]:
    return [program("helm", "deploy/setup/ensure-deploy-tools builds it where Go is installed"), *words]


def flags(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def rendered(values: dict[str, str], release: str = "shop") -> list[Manifest]:
    text = said_by(helm("template", release, str(CHART), "--kube-version", KUBERNETES, *flags(values)))
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def one(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = of_kind(manifests, kind)
    return found


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (manifest for manifest in of_kind(manifests, kind) if manifest["metadata"]["name"] == name)
    return found


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def gateway(manifests: list[Manifest]) -> Manifest:
    (container,) = one(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def settings_of(manifests: list[Manifest], folder: Path) -> LoadedSettings:
    """What a gateway makes of its environment and of the settings' file that is mounted into it."""
    container = gateway(manifests)
    environment = {each["name"]: each["value"] for each in container["env"]}
    references = {each["configMapRef"]["name"] for each in container["envFrom"] if "configMapRef" in each}
    for name in references:
        environment |= named(manifests, "ConfigMap", name)["data"]
    (volume,) = (
        each
        for each in one(manifests, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
        if each["name"] == "settings"
    )
    file = folder / "lakelog.toml"
    file.write_text(named(manifests, "ConfigMap", volume["configMap"]["name"])["data"][file.name])
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "settings")
    assert environment.pop("LAKELOG_CONFIG") == f"{mount['mountPath']}/{file.name}"
    return load_settings({}, environment, file)


@pytest.mark.parametrize("values", [EVERYTHING, ON_A_VOLUME], ids=["everything", "on a volume"])
def test_lint_and_kubernetes_schemas(values: dict[str, str]) -> None:
    said_by(helm("lint", str(CHART), "--strict", *flags(values)))
    for manifest in rendered(values):
        if not manifest["apiVersion"].startswith("monitoring.coreos.com/"):  # the Prometheus operator's own
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == project["version"]
    assert gateway(rendered(EVERYTHING))["image"] == f"lakelog:{project['version']}"


def test_services_and_budgets_and_monitors_meet_the_gateways() -> None:
    manifests = rendered(EVERYTHING)
    stateful = one(manifests, "StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for port in gateway(manifests)["ports"]}
    first = {**labels, "statefulset.kubernetes.io/pod-name": f"{stateful['metadata']['name']}-0"}
    for service in of_kind(manifests, "Service"):
        assert selects(service["spec"]["selector"], first)
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert {port["port"] for port in one(manifests, "NetworkPolicy")["spec"]["ingress"][0]["ports"]} == ports
    assert named(manifests, "Service", stateful["spec"]["serviceName"])["spec"]["clusterIP"] == "None"
    assert selects(one(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
    monitor = one(manifests, "ServiceMonitor")["spec"]
    (watched,) = (
        service
        for service in of_kind(manifests, "Service")
        if selects(monitor["selector"]["matchLabels"], service["metadata"]["labels"])
    )
    assert {each["port"] for each in monitor["endpoints"]} <= {port["name"] for port in watched["spec"]["ports"]}
    for path in one(manifests, "Ingress")["spec"]["rules"][0]["http"]["paths"]:
        backend = path["backend"]["service"]
        served = named(manifests, "Service", backend["name"])["spec"]["ports"]
        assert backend["port"]["name"] in {port["name"] for port in served}


@pytest.mark.parametrize("release", ["streaming-production", "a" * 53, f"{'lakelog-' * 6}x"])
def test_no_name_is_too_long(release: str) -> None:
    longest = {"CronJob": 52, "StatefulSet": 52}  # so that their jobs' and pods' names, and labels, fit as well
    names = {(each["kind"], each["metadata"]["name"]) for each in rendered(EVERYTHING, release)}
    assert {name for kind, name in names if len(name) > longest.get(kind, 63)} == set()
    assert len({name for kind, name in names if kind == "CronJob"}) == 2
    custom = {"jobs.schedules[0].name": "x" * 12, "warehouse": "s3://bucket/topics"}
    words = helm("template", "shop", str(CHART), "--kube-version", KUBERNETES, *flags(custom))
    assert "jobs.schedules.0.name" in refusal_of(words).replace("/", ".")


@pytest.mark.parametrize(
    ("values", "public_url"),
    [
        ({}, "https://lakelog.example.com"),
        ({"ingress.tlsSecret": ""}, "http://lakelog.example.com"),
        ({"settings.public_url": "https://elsewhere.example.com"}, "https://elsewhere.example.com"),
        ({"settings.public_url": ""}, ""),
        ({"ingress.enabled": "false"}, ""),
    ],
    ids=str,
)
def test_links_lead_to_the_ingress(values: dict[str, str], public_url: str, tmp_path: Path) -> None:
    assert settings_of(rendered({**EVERYTHING, **values}), tmp_path).gateway.public_url == public_url


@pytest.mark.parametrize("cluster_id", ["lakelog", "shop"])
def test_requests_of_groups_go_to_the_first_gateway(cluster_id: str) -> None:
    manifests = rendered({**EVERYTHING, "settings.cluster_id": cluster_id})
    rules = one(manifests, "Ingress")["spec"]["rules"][0]["http"]["paths"]
    first = [each["path"] for each in rules if each["backend"]["service"]["name"].endswith("-coordinator")]
    served = create_app(load_settings({}, {})).openapi()["paths"]
    of_groups = {path.replace("{cluster_id}", cluster_id) for path in served if "group" in path or "/consumers" in path}
    assert {path for path in of_groups if not any(f"{path}/".startswith(f"{each}/") for each in first)} == set()


def test_kafka_clients_come_back_to_the_first_gateway() -> None:
    manifests = rendered(EVERYTHING)
    environment = {each["name"]: each["value"] for each in gateway(manifests)["env"]}
    host, _, port = environment["LAKELOG_KAFKA_ADVERTISED"].partition(":")
    service = named(manifests, "Service", host.split(".")[0])
    assert "statefulset.kubernetes.io/pod-name" in service["spec"]["selector"]
    assert int(port) in {each["port"] for each in service["spec"]["ports"] if each["targetPort"] == "kafka"}
    without = rendered({**EVERYTHING, "kafka.enabled": "false"})
    assert {each["name"]: each["value"] for each in gateway(without)["env"]}["LAKELOG_KAFKA"] == "none"
    assert all(port["name"] == "http" for each in of_kind(without, "Service") for port in each["spec"]["ports"])


def test_jobs_are_not_mistaken_for_gateways() -> None:
    manifests = rendered(EVERYTHING)
    for job in of_kind(manifests, "CronJob"):
        labels = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
        for service in of_kind(manifests, "Service"):
            assert not selects(service["spec"]["selector"], labels)


def test_a_gateway_has_time_to_stop() -> None:
    settings = load_settings({}, {})
    pod = one(rendered(EVERYTHING), "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    before_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= before_s + settings.gateway.stop_timeout_ms / 1000 + 10
    longer = one(rendered({**EVERYTHING, "settings.stop_timeout_ms": "90000"}), "StatefulSet")
    assert longer["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 110


@pytest.mark.parametrize("values", [EVERYTHING, ON_A_VOLUME], ids=["everything", "on a volume"])
def test_a_gateway_takes_the_settings_that_it_is_given(values: dict[str, str], tmp_path: Path) -> None:
    given = {"settings.hot_tail_bytes_max": "268435456", "settings.fsync": "false"}
    lists = {"settings.cors_origins[0]": "https://a.example", "settings.cors_origins[1]": "https://b.example"}
    manifests = rendered({**values, **given, **lists})
    settings = settings_of(manifests, tmp_path)
    assert settings.log.hot_tail_bytes_max == 268435456
    assert settings.gateway.cors_origins == "https://a.example,https://b.example"
    assert settings.gateway.warehouse == values.get("warehouse", "/data")
    ports = {port["name"]: port["containerPort"] for port in gateway(manifests)["ports"]}
    assert settings.gateway.http == f"0.0.0.0:{ports['http']}"
    assert settings.gateway.kafka == f"0.0.0.0:{ports['kafka']}"


def test_the_jobs_are_those_of_the_plain_manifests() -> None:
    manifests = rendered(EVERYTHING)
    plain = list(yaml.safe_load_all((DEPLOY / "jobs" / "kubernetes-cronjobs.yaml").read_text()))

    def schedules(found: list[Manifest]) -> set[tuple[str, str, tuple[str, ...]]]:
        containers = {
            job["spec"]["schedule"]: job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
            for job in of_kind(found, "CronJob")
        }
        return {(when, each["image"], tuple(each.get("args") or each["command"])) for when, each in containers.items()}

    assert schedules(manifests) == schedules(plain)
    run = {name for *_, words in schedules(manifests) for name in words[words.index("run") + 1 :]}
    assert run == set(JOB_NAMES)


def test_jobs_keep_offsets_for_as_long_as_gateways_do() -> None:
    for job in of_kind(rendered({**EVERYTHING, "settings.offsets_retention_minutes": "20160"}), "CronJob"):
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        assert container["env"] == [{"name": "LAKELOG_OFFSETS_RETENTION_MINUTES", "value": "20160"}]


def test_jobs_on_a_volume_go_where_the_gateway_is() -> None:
    manifests = rendered(ON_A_VOLUME)
    stateful = one(manifests, "StatefulSet")
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    expected = f"{claim['metadata']['name']}-{stateful['metadata']['name']}-0"
    for job in of_kind(manifests, "CronJob"):
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (data,) = (volume for volume in pod["volumes"] if volume["name"] == "data")
        assert data["persistentVolumeClaim"]["claimName"] == expected
        (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert selects(term["labelSelector"]["matchLabels"], stateful["spec"]["template"]["metadata"]["labels"])


def test_alerts_and_dashboard_arrive_whole() -> None:
    manifests = rendered(EVERYTHING)
    assert one(manifests, "PrometheusRule")["spec"] == yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    dashboard = named(manifests, "ConfigMap", "shop-lakelog-dashboard")["data"]["lakelog.json"]
    assert yaml.safe_load(dashboard) == yaml.safe_load((DEPLOY / "grafana/lakelog.json").read_text())


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "warehouse is missing"),
        ({"warehouse": "/data"}, "does not match pattern"),
        ({"persistence.enabled": "true", "replicas": "2"}, "persistence.enabled is for one gateway"),
        ({"persistence.enabled": "true", "warehouse": "s3://b/t"}, "exclude each other"),
        ({"warehouse": "s3://b/t", "ingress.enabled": "true"}, "ingress.host is missing"),
        ({"warehouse": "s3://b/t", "settings.http": "0.0.0.0:80"}, "settings"),
        ({"warehouse": "s3://b/t", "kafka.advertised": "no-port"}, "does not match pattern"),
        ({"warehouse": "s3://b/t", "replica": "2"}, "replica"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(values: dict[str, str], reason: str) -> None:
    words = helm("template", "shop", str(CHART), "--kube-version", KUBERNETES, *flags(values))
    assert reason in refusal_of(words)
