#!/usr/bin/env bash
# Three machines with `pintle up` on one etcd, and a fourth with `pintle join`, are one cluster: one set of loops and one
# scheduler, load balancers at all nodes. Then one server is killed under writes and running pods, and comes back.
#
#   PINTLE       the binary to test (built when not given)
#   PEER_ETCD    the etcd (etcd in PATH)
#
# See nodes.sh for what it takes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/machines.sh
. "$here/machines.sh"
# shellcheck source=tests/smoke/nodes.sh
. "$here/nodes.sh"
etcd=$(command -v "${PEER_ETCD:-etcd}" || true)
[ -n "$etcd" ] || leave_out "SEVERAL SERVERS LEFT OUT: there is no etcd (PEER_ETCD names it)."
need_nodes "SEVERAL SERVERS"

since=
# passed WHAT: prints the seconds since the mark.
mark() { since=$(date +%s%N); }
passed() { say "  $(($(date +%s%N) - since))" | sed -E "s/([0-9]*)([0-9]{2})[0-9]{7}/\1.\2 s: $*/; s/ \./ 0./"; }
not() { ! "$@"; }

say "an etcd and four machines"
make_images
make_switch lan
make_machine store && plug store lan eth0 192.168.6.9/24
start_on store etcd "$etcd" --data-dir "$scratch/etcd" --listen-client-urls http://192.168.6.9:2379 \
  --advertise-client-urls http://192.168.6.9:2379 --listen-peer-urls http://192.168.6.9:2380 --log-level error \
  --initial-advertise-peer-urls http://192.168.6.9:2380 --initial-cluster default=http://192.168.6.9:2380
agent_settings='nodeLeaseDurationSeconds: 20'
for number in 1 2 3 4; do make_node "m$number" "192.168.6.$number/24"; done

# k NUMBER ARGUMENTS...: kubectl with the server of that machine, from a machine that lives.
k() { on store kubectl --kubeconfig "$scratch/kubeconfig$1" --request-timeout 10s "${@:2}"; }
# The second server of the etcd does not exist: each client must use the first, and say so.
start_up() {
  start_on "m$1" up "$binary" up -v --data-dir "$scratch/m$1/data" --bind-address 0.0.0.0 --advertise-address "192.168.6.$1" \
    --etcd-servers http://192.168.6.9:2379,http://192.168.6.9:2999 --nodeagent-config "$scratch/m$1/agent.yaml" \
    --node-monitor-grace-period 16s "${@:2}"
}
await_up() {
  wait_until "the kubeconfig of m$1" test -s "$scratch/m$1/data/admin.kubeconfig"
  sed "s#https://[^ ]*#https://192.168.6.$1:6443#" "$scratch/m$1/data/admin.kubeconfig" >"$scratch/kubeconfig$1"
  wait_until "the server of m$1" k "$1" get --raw /readyz
}

# holder COMPONENT NUMBER: the process that leads, as that server knows it.
holder() { k "$2" -n kube-system get lease "kube-$1" -o 'jsonpath={.spec.holderIdentity}'; }
is_held_by() { [[ $(holder "$1" "$3") == "$2"_* ]]; }

say "pintle up on three of them"
mark
start_up 1
wait_until "the cluster's token" test -s "$scratch/m1/data/pki/cluster.token"
cp "$scratch/m1/data/pki/cluster.token" "$scratch/token"
await_up 1
# the first one leads, so that it is known which one to kill
for component in controller-manager scheduler; do wait_until "the lease of the $component" is_held_by "$component" m1 1; done
for number in 2 3; do start_up "$number" --cluster-token-file "$scratch/token"; done
for number in 2 3; do await_up "$number"; done
wait_until "three nodes" k 1 wait --for=condition=Ready node/m1 node/m2 node/m3 --timeout=1s
passed "three servers, three nodes"

say "pintle join on the fourth"
line=$(on m1 "$binary" token create --data-dir "$scratch/m1/data" 2>/dev/null)
read -r -a words <<<"$line"
start_on m4 join "$binary" join -v --data-dir "$scratch/m4/data" --nodeagent-config "$scratch/m4/agent.yaml" "${words[@]:2}"
wait_until "the fourth node" k 1 wait --for=condition=Ready node/m4 --timeout=1s
knows_servers() { [ "$(grep -c '^https://192.168.6.[123]:6443$' "$scratch/m4/data/node/servers")" = 3 ]; }
wait_until "the addresses of all servers on m4" knows_servers

say "one set of loops, one scheduler"
for component in controller-manager scheduler; do is_held_by "$component" m1 3 || die "another machine leads the $component"; done
not grep -q 'acquired the lease' "$scratch"/logs/m[23].up || die "loops or a scheduler have run on another machine, too"
# The lines of componentstatuses are NAME STATUS MESSAGE.
statuses() {
  k "$1" get componentstatuses -o 'jsonpath={range .items[*]}{.metadata.name} {.conditions[0].status} {.conditions[0].message}{"\n"}{end}'
}
is_true() {
  local all
  all=$(statuses "$1")
  grep -q "^scheduler True ok: $2" <<<"$all" && grep -q "^controller-manager True ok: $2" <<<"$all" &&
    grep -q '^etcd-0 True ' <<<"$all" && grep -q '^etcd-1 False .*2999' <<<"$all"
}
for number in 1 2 3; do wait_until "true component statuses at m$number" is_true "$number" m1_; done

say "a service with the addresses of all nodes"
k 1 apply -f - >/dev/null <<'END'
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: registry.test/busybox:1
        command: [sh, -c, 'mkdir -p /www; hostname >/www/index.html; exec httpd -f -p 80 -h /www']
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 8088, targetPort: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: taken}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 6443, targetPort: 80}]}
END
wait_until "the pages" k 1 rollout status daemonset/web --timeout=1s
addresses() { k "${2:-2}" get service "$1" -o 'jsonpath={.status.loadBalancer.ingress[*].ip}'; }
has_addresses() { [ "$(addresses "$1")" = "$2" ]; }
wait_until "the addresses of all nodes" has_addresses web '192.168.6.1 192.168.6.2 192.168.6.3 192.168.6.4'
page() { on "$1" /bin/busybox timeout 3 /bin/busybox wget -q -O - "http://$2/"; }
for number in 1 2 3 4; do wait_until "the page at m$number" page store "192.168.6.$number:8088"; done
# the servers listen on that port, the fourth machine does not
wait_until "the address of the machine whose port is free" has_addresses taken 192.168.6.4
k 1 delete service taken >/dev/null

# in_pod NUMBER COMMAND...: in the pod of that machine, without a server.
in_pod() {
  local container
  container=$(on "m$1" ctr -n k8s.io containers ls 'labels."io.kubernetes.container.name"==c' | awk 'NR == 2 { print $1 }')
  containers "m$1" tasks exec --exec-id "$RANDOM$RANDOM" "$container" "${@:2}"
}
resolves() { in_pod "$1" timeout 5 wget -q -O /dev/null http://web.default.svc.cluster.local:8088/; }
for number in 1 2 3 4; do wait_until "the name in the pod of m$number" resolves "$number"; done

say "the server of m1 is killed under writes"
cat >"$scratch/writer.py" <<'END'
"""Creates config maps until a file appears; a failed request is repeated at the next server. Prints what a client saw."""
import json, os, re, ssl, sys, time, http.client
kubeconfig, stop = open(sys.argv[1]).read(), sys.argv[2]
field = lambda name: re.search(rf"{name}: *\"?([^\"\s]+)", kubeconfig).group(1)
import base64
context = ssl.create_default_context(cadata=base64.b64decode(field("certificate-authority-data")).decode())
token = field("token")
servers, at, connections = ["192.168.6.1", "192.168.6.2", "192.168.6.3"], 0, {}
written = failed = uncured = 0
longest = 0.0
def send(server, body):
    connection = connections.get(server) or http.client.HTTPSConnection(server, 6443, timeout=3, context=context)
    connections[server] = connection
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    try:
        connection.request("POST", "/api/v1/namespaces/default/configmaps", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except Exception:
        connections.pop(server).close()
        raise
while not os.path.exists(stop):
    body = json.dumps({"metadata": {"name": f"w{written}"}})
    began, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            status = send(servers[at], body)
        except Exception as why:
            status = repr(why)
        # the first attempt may have been carried out although its answer was lost
        if status == 201 or (status == 409 and tries > 1):
            break
        failed += 1
        at = (at + 1) % len(servers)
        if tries > 20:
            uncured += 1
            print("not cured:", status)
            break
        if tries % 3 == 0:
            time.sleep(0.2)
    written += 1
    longest = max(longest, time.monotonic() - began)
    time.sleep(0.01)
print(f"{written} writes, {failed} failed attempts, {uncured} not cured by a retry, the longest took {longest:.2f} s")
sys.exit(uncured != 0)
END
on store python3 "$scratch/writer.py" "$scratch/kubeconfig1" "$scratch/stop" >"$scratch/writer.log" 2>&1 &
writer=$!
# a node counts as ready for a while after its server is lost: these pods do not go there
k 2 label node m2 m3 m4 part=survivor >/dev/null
k 2 apply -f - >/dev/null <<'END'
apiVersion: apps/v1
kind: Deployment
metadata: {name: next}
spec:
  selector: {matchLabels: {app: next}}
  template:
    metadata: {labels: {app: next}}
    spec:
      nodeSelector: {part: survivor}
      containers: [{name: main, image: registry.test/busybox:1, command: [sleep, "1000"]}]
END
wait_until "the deployment" k 2 rollout status deployment/next --timeout=1s
mark
# shellcheck disable=SC2016 # the shell inside reads the file
on m1 bash -c 'kill -KILL "$(cat /run/up.pid)"'
wait "${started[m1.up]}" || true
wait_until "writes go on" k 2 create configmap after-the-kill
lost_server() { [ "$(k 2 get "$1" -o "jsonpath={$2}")" = '192.168.6.2 192.168.6.3' ]; }
is_held_elsewhere() { [[ $(holder "$1" 2) == m[23]_* ]]; }
went_on() { grep -q 'going on with https://192.168.6.[23]:6443' "$scratch/logs/m4.join"; }
has_dns_of() { [ "$(k 2 -n kube-system get endpointslices -l kubernetes.io/service-name=kube-dns -o 'jsonpath={.items[*].endpoints[*].nodeName}')" = "$1" ]; }
wait_until "the joined node goes on with another machine" went_on && passed "the joined node goes on with another machine"
wait_until "two DNS servers" has_dns_of 'm2 m3' && passed "the DNS service has the servers that live"
wait_until "the endpoints without m1" lost_server endpoints/kubernetes '.subsets[*].addresses[*].ip'
wait_until "the slice without m1" lost_server endpointslice/kubernetes '.endpoints[*].addresses[*]'
passed "the endpoints of the service kubernetes are the two that live"
for component in controller-manager scheduler; do
  wait_until "the $component elsewhere" is_held_elsewhere "$component"
  passed "the $component runs elsewhere"
done
k 3 scale deployment next --replicas 3 >/dev/null
wait_until "new pods" k 3 rollout status deployment/next --timeout=1s
passed "new pods run"
for number in 2 3; do wait_until "true component statuses at m$number" is_true "$number" 'm[23]_'; done

say "names and services"
# failures NUMBER: of twenty requests by name from the pod of a machine.
failures() {
  local failed=0
  for _ in $(seq 20); do resolves "$1" 2>/dev/null || failed=$((failed + 1)); done
  echo "$failed"
}
for number in 1 2 3 4; do
  failed=$(failures "$number")
  [ "$failed" = 0 ] || die "$failed of 20 requests by name failed on m$number"
done
wait_until "the addresses of the ready nodes" has_addresses web '192.168.6.2 192.168.6.3 192.168.6.4'
passed "the load balancer has the nodes that are ready"
for number in 2 3 4; do page store "192.168.6.$number:8088" >/dev/null || die "there is no page at m$number"; done

touch "$scratch/stop"
wait "$writer" || { cat "$scratch/writer.log" && die "a write failed that a retry did not cure"; }
say "  $(cat "$scratch/writer.log")"
count=$(sed 's/ .*//' "$scratch/writer.log")
[ "$(k 3 get configmaps -o name | grep -c '^configmap/w[0-9]')" = "$count" ] || die "a write is lost"

say "the server of m1 comes back, without the token"
mark
start_up 1
wait_until "the first node" k 2 wait --for=condition=Ready node/m1 --timeout=1s
wait_until "three DNS servers" has_dns_of 'm1 m2 m3'
wait_until "the addresses of all nodes" has_addresses web '192.168.6.1 192.168.6.2 192.168.6.3 192.168.6.4'
passed "m1 is back"
is_held_elsewhere scheduler || die "the scheduler went back"
say "three servers are one cluster, and two are, too"
