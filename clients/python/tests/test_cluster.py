"""Run with `python -m unittest` in this folder; PINTLE names the program."""

import datetime
import os
import signal
import subprocess
import sys
import time
import unittest

import pintle

MAPS = "/api/v1/namespaces/default/configmaps"
POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
CHILD = """
import pintle, time
cluster = pintle.Cluster(components=["apiserver"])
print(cluster.kubeconfig_path, flush=True)
time.sleep(3600)
"""


class ClusterTest(unittest.TestCase):
    def test_clusters_are_ready_for_pods_and_stop(self):
        with pintle.Cluster(nodes=2) as cluster:
            cluster.request("POST", "/api/v1/namespaces/default/pods", POD)
            self.assertIn(cluster.url, cluster.kubeconfig)
            self.assertIn("is ready on", cluster.log)
            self.assertTrue(os.path.exists(cluster.kubeconfig_path))
        self.assertFalse(os.path.exists(cluster.kubeconfig_path))
        cluster.stop()

    def test_the_clock_moves_on_request(self):
        with pintle.Cluster(nodes=1, manual_clock=True, seed=7) as cluster:
            before = cluster.clock.now()
            move = cluster.clock.advance(datetime.timedelta(minutes=5), step="1m", pause="1ms")
            self.assertEqual(move.now - before, datetime.timedelta(minutes=5))
            cluster.clock.settle()

    def test_a_real_clock_is_not_moved(self):
        with pintle.Cluster(components=["apiserver"]) as cluster:
            with self.assertRaisesRegex(RuntimeError, "manual_clock"):
                cluster.clock.advance("1h")

    def test_requests_meet_the_faults_of_rules(self):
        at_start = [{"verbs": ["list"], "resources": ["secrets"], "status": 500}]
        with pintle.Cluster(components=["apiserver"], faults=at_start) as cluster:
            with self.assertRaisesRegex(pintle.StatusError, "500"):
                cluster.request("GET", "/api/v1/secrets")
            cluster.faults.set(
                [{"verbs": ["create"], "resources": ["configmaps"], "status": 409, "times": 1}], seed=7
            )
            with self.assertRaisesRegex(pintle.StatusError, "409"):
                cluster.request("POST", MAPS, {"metadata": {"name": "a"}})
            cluster.request("POST", MAPS, {"metadata": {"name": "a"}})
            self.assertEqual(cluster.faults.counts(), [pintle.FaultCount(matched=2, injected=1)])
            with self.assertRaisesRegex(pintle.StatusError, "400: .*status"):
                cluster.faults.set([{"status": 200}])
            cluster.faults.clear()
            self.assertEqual(cluster.faults.counts(), [])

    def test_forks_have_the_objects_and_go_their_own_way(self):
        with pintle.Cluster(components=["apiserver"]) as cluster:
            cluster.request("POST", MAPS, {"metadata": {"name": "prepared"}})
            other = cluster.fork()
            with cluster.fork() as fork:
                fork.request("POST", MAPS, {"metadata": {"name": "own"}})
                fork.request("GET", f"{MAPS}/prepared")
                self.assertTrue(os.path.exists(fork.kubeconfig_path))
                for parallel in [cluster, other]:
                    with self.assertRaisesRegex(pintle.StatusError, "404"):
                        parallel.request("GET", f"{MAPS}/own")
            self.assertFalse(os.path.exists(fork.kubeconfig_path))
            with self.assertRaises(OSError):
                fork.request("GET", MAPS)
            fork.stop()
        # a fork stops with its parent
        other.stop()

    def test_errors_say_what_to_do(self):
        with self.assertRaisesRegex(pintle.StartError, "set the variable PINTLE"):
            pintle.Cluster(binary="no-such-pintle")
        with self.assertRaisesRegex(pintle.StartError, "--seed needs --clock manual"):
            pintle.Cluster(seed=7)
        with pintle.Cluster(components=["apiserver"]) as cluster:
            with self.assertRaisesRegex(pintle.StatusError, '404: namespaces "a" not found'):
                cluster.request("GET", "/api/v1/namespaces/a")

    def test_a_cluster_goes_when_its_test_is_killed(self):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
        path = child.stdout.readline().strip()
        self.assertTrue(os.path.exists(path), path)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        # the server deletes the file when it ends
        deadline = time.monotonic() + 60
        while os.path.exists(path):
            self.assertLess(time.monotonic(), deadline, f"the server is still there: {path}")
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
