#!/usr/bin/env bash
# A cluster with containerd, in namespaces: `pintle up` alone, without CNI plugins of others, gives pods addresses that
# other pods, the node and, by host ports, other machines reach. A second machine with a node agent and `pintle network`
# has pods that reach those of the first. Deleted pods leave nothing behind. See network.sh for what it takes.
set -euo pipefail
# shellcheck source=tests/smoke/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=tests/smoke/machines.sh
. "$(dirname "${BASH_SOURCE[0]}")/machines.sh"
# shellcheck source=tests/smoke/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
need_nodes "CLUSTER WITH A POD NETWORK"

say "a cluster with containerd"
make_images
make_switch lan
make_machine client && plug client lan eth0 192.168.5.2/24 fd05::2/64
make_node node 192.168.5.1/24 fd05::1/64

kubeconfig=$scratch/kubeconfig
k() { on node kubectl --kubeconfig "$kubeconfig" "$@"; }
start_cluster() {
  start_on node up "$binary" up -v --data-dir "$scratch/data" --write-kubeconfig "$kubeconfig" --bind-address 0.0.0.0 \
    --advertise-address 192.168.5.1 --tls-san 192.168.5.1 --nodeagent-config "$scratch/node/agent.yaml" \
    --service-cluster-ip-range 10.96.0.0/16,fd00:10:96::/112
  wait_until "the API server" k get --raw /readyz
}
start_cluster
wait_until "the CNI configuration" test -f "$scratch/node/net.d/10-pintle.conflist"
began=$SECONDS
wait_until "the node" k wait --for=condition=Ready node/node --timeout=1s
say "  the node is ready $((SECONDS - began)) s after the CNI configuration"
wait_until "a service account" k get serviceaccount default

# What the kernel of the node has of pods.
footprint() {
  on node bash -c 'ip -o link | sed "s/^[0-9]*: //; s/@.*//; s/:.*//" | sort; ip route; ip -6 route | grep -v fe80; ls /run/netns
    ! command -v nft >/dev/null || nft list tables; ls /var/lib/cni 2>/dev/null; true'
}
# run_pod NAME NODE
run_pod() {
  k run "$1" --image registry.test/busybox:1 --restart=Never --overrides "{\"spec\":{\"nodeName\":\"$2\"}}" --command -- sleep 1000 >/dev/null
}
address_of() { k get pod "$1" -o "jsonpath={.status.podIPs[${2:-0}].ip}"; }
fetch() {
  on "$1" python3 -c 'import sys, urllib.request
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=5).read().decode())' "$2"
}
greets() { fetch "$1" "$2" 2>/dev/null | grep hello >/dev/null; }
reaches() { k exec "$1" -- ping -c 1 -W 3 "$2" >/dev/null; }

before=$(footprint)
run_pod a node && run_pod b node
k apply -f - >/dev/null <<'END'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: registry.test/busybox:1
    command: [sh, -c, 'mkdir /web && echo hello >/web/index.html && exec httpd -f -p 80 -h /web']
    ports: [{containerPort: 80, hostPort: 8080}]
END
wait_until "the pods" k wait --for=condition=Ready pod/a pod/b pod/web --timeout=1s
for name in a b web; do
  [[ $(address_of $name) =~ ^10\.244\.0\.[0-9]+$ ]] || die "pod $name has the address $(address_of $name)"
  [[ $(address_of $name 1) =~ ^fd00:10:244: ]] || die "the second address of $name is $(address_of $name 1)"
done
for target in "$(address_of b)" "$(address_of b 1)" 192.168.5.1 192.168.5.2 fd05::2; do
  reaches a "$target" || die "a does not reach $target"
done
k exec a -- ip address show lo | grep 'inet 127.0.0.1' >/dev/null || die "the loopback link of a pod is down"
on node busybox ping -c 1 -W 3 "$(address_of b)" >/dev/null || die "the node does not reach b"
wait_until "the node reaches the pod's port" greets node "http://$(address_of web)/"
for address in 192.168.5.1 127.0.0.1; do
  greets node "http://$address:8080/" || die "the node does not reach the host port at $address"
done
greets client http://192.168.5.1:8080/ || die "another machine does not reach the host port"

say "  the server starts again: pods keep their addresses"
kept=$(address_of a)
stop_on node up
on node busybox ping -c 1 -W 3 "$kept" >/dev/null || die "a pod is out of reach while the server is stopped"
start_cluster
wait_until "the pods" k wait --for=condition=Ready pod/a pod/b pod/web --timeout=1s
reaches b "$kept" || die "b does not reach a after a restart"

say "  deleted pods leave nothing behind"
k delete pod a web --grace-period=1 --wait=true --timeout=60s >/dev/null
k delete pod b --grace-period=1 --wait=true --timeout=60s >/dev/null
is_clear() { [ "$(footprint)" = "$before" ]; }
wait_until "links, routes and rules of deleted pods are gone" is_clear || { diff <(echo "$before") <(footprint); exit 1; }
on node python3 -c 'import json; assert json.load(open("/run/pintle/pods/attachments.json"))["attachments"] == []' ||
  die "addresses of deleted pods are still recorded"

say "  a second machine"
make_node node2 192.168.5.3/24 fd05::3/64
sed 's#https://[^ ]*#https://192.168.5.1:6443#' "$kubeconfig" >"$scratch/node2/kubeconfig"
start_on node2 agent "$binary" nodeagent --config "$scratch/node2/agent.yaml" --kubeconfig "$scratch/node2/kubeconfig" \
  --root-dir "$scratch/node2/agent" --cert-dir "$scratch/node2/agent/pki" --container-runtime-endpoint unix:///run/containerd/containerd.sock
start_on node2 network "$binary" network -v --kubeconfig "$scratch/node2/kubeconfig"
wait_until "the second node" k wait --for=condition=Ready node/node2 --timeout=1s
run_pod a node && run_pod far node2
wait_until "the pods" k wait --for=condition=Ready pod/a pod/far --timeout=1s
[[ $(address_of far) =~ ^10\.244\.1\.[0-9]+$ ]] || die "the pod of the second machine has the address $(address_of far)"
for target in "$(address_of far)" "$(address_of far 1)"; do
  wait_until "a pod of the first machine reaches $target of the second" reaches a "$target"
  wait_until "the first machine reaches $target" on node busybox ping -c 1 -W 3 "$target"
done
say "the cluster works"
