import datetime
import time

import kubernetes
import pintle
import pytest


@pytest.fixture
def cluster():
    with pintle.Cluster(nodes=3) as cluster:
        kubernetes.config.load_kube_config(cluster.kubeconfig_path)
        yield cluster


def deployment(name, replicas):
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
            },
        },
    }


def test_a_deployment_becomes_available(cluster):
    apps = kubernetes.client.AppsV1Api()
    apps.create_namespaced_deployment("default", deployment("web", 3))
    deadline = time.monotonic() + 60
    while apps.read_namespaced_deployment("web", "default").status.available_replicas != 3:
        assert time.monotonic() < deadline, cluster.log
        time.sleep(0.01)


def test_a_token_expires():
    with pintle.Cluster(manual_clock=True, seed=7) as cluster:
        kubernetes.config.load_kube_config(cluster.kubeconfig_path)
        core = kubernetes.client.CoreV1Api()
        request = {"spec": {"audiences": [], "expirationSeconds": 3600}}
        answer = core.create_namespaced_service_account_token("default", "default", request)
        review = {"spec": {"token": answer.status.token}}
        authentication = kubernetes.client.AuthenticationV1Api()
        assert authentication.create_token_review(review).status.authenticated
        cluster.clock.advance(datetime.timedelta(hours=2))
        assert not authentication.create_token_review(review).status.authenticated
