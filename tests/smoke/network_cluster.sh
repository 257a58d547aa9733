#!/usr/bin/env bash
# A cluster of one machine with containerd, in namespaces: `pintle up` alone, without CNI plugins of others, gives pods
# addresses that other pods, the node and, by host ports, other machines reach. Deleted pods leave nothing behind.
# See network.sh for what it takes.
set -euo pipefail
# shellcheck source=tests/smoke/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=tests/smoke/machines.sh
. "$(dirname "${BASH_SOURCE[0]}")/machines.sh"
need_machines "CLUSTER WITH A POD NETWORK"
tools=${PINTLE_NODE:-$repository/../shared/tools/node}
missing() { leave_out "CLUSTER WITH A POD NETWORK LEFT OUT: $*"; }
for program in containerd ctr runc kubectl gcc python3; do
  command -v $program >/dev/null || missing "there is no $program."
done
[ -f "$tools/images/make.py" ] || missing "there is no folder with images at $tools."
[ -x /bin/busybox ] || missing "there is no /bin/busybox for the images."
[ -d /sys/fs/cgroup/memory ] || missing "this machine has no cgroups v1."
[ -n "${binary:-}" ] || find_binary
binary=$(realpath "$binary")

controllers='cpu cpuacct cpuset memory devices freezer blkio pids systemd unified'
group=pintle-$$
clear_cluster() {
  local status=$? controller task
  trap - EXIT
  set +e
  for task in $(on node ctr -n k8s.io tasks ls -q 2>/dev/null); do
    on node ctr -n k8s.io tasks kill -s KILL -a "$task" >/dev/null 2>&1
  done
  kill -KILL "${machines[node]}" 2>/dev/null
  sleep 1
  for controller in $controllers; do
    find "/sys/fs/cgroup/$controller/$group" -depth -type d -exec rmdir {} \; 2>/dev/null
  done
  (exit "$status")
  clear_machines
}

say "a cluster of one machine with containerd"
mkdir "$scratch/images" "$scratch/net.d" "$scratch/bin" "$scratch/varlog" "$scratch/state"
python3 "$tools/images/make.py" "$scratch/images" >"$scratch/images.log" 2>&1 ||
  { cat "$scratch/images.log" && missing "the images cannot be made."; }
make_switch lan
make_machine client && plug client lan eth0 192.168.5.2/24 fd05::2/64
make_machine node && plug node lan eth0 192.168.5.1/24 fd05::1/64
trap clear_cluster EXIT
on node ip route add default via 192.168.5.254 dev eth0
for controller in $controllers; do
  [ ! -d "/sys/fs/cgroup/$controller" ] || mkdir -p "/sys/fs/cgroup/$controller/$group"
done
for file in cpuset.cpus cpuset.mems; do
  cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$group/$file"
done
on node bash -euc "mount --make-rshared /; mount --bind '$scratch/varlog' /var/log; mount --make-rshared /
  printf '127.0.0.1 localhost\n192.168.5.1 node\n' >'$scratch/hosts'; mount --bind '$scratch/hosts' /etc/hosts"
cat >"$scratch/containerd.toml" <<END
version = 2
root = "$scratch/state/root"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$scratch/state/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.test/pause:3.9"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$scratch/bin"
    conf_dir = "$scratch/net.d"
END
cat >"$scratch/agent.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupRoot: /$group
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
END
start_on node containerd containerd -c "$scratch/containerd.toml"
wait_until containerd on node ctr version
for image in pause busybox; do
  for file in "$scratch"/images/*"$image"*.tar; do on node ctr -n k8s.io images import --base-name x "$file" >/dev/null; done
done

kubeconfig=$scratch/kubeconfig
k() { on node kubectl --kubeconfig "$kubeconfig" "$@"; }
start_cluster() {
  start_on node up "$binary" up -v --data-dir "$scratch/data" --write-kubeconfig "$kubeconfig" \
    --nodeagent-config "$scratch/agent.yaml" --service-cluster-ip-range 10.96.0.0/16,fd00:10:96::/112
  wait_until "the API server" k get --raw /readyz
}
start_cluster
wait_until "the CNI configuration" test -f "$scratch/net.d/10-pintle.conflist"
began=$SECONDS
wait_until "the node" k wait --for=condition=Ready node/node --timeout=1s
say "  the node is ready $((SECONDS - began)) s after the CNI configuration"
wait_until "a service account" k get serviceaccount default

# What the kernel of the node has of pods.
footprint() {
  on node bash -c 'ip -o link | sed "s/^[0-9]*: //; s/@.*//; s/:.*//" | sort; ip route; ip -6 route | grep -v fe80; ls /run/netns
    ! command -v nft >/dev/null || nft list tables; ls /var/lib/cni 2>/dev/null; true'
}
before=$(footprint)
make_pods() {
  local name
  for name in a b; do
    k run $name --image registry.test/busybox:1 --restart=Never --command -- sleep 1000 >/dev/null
  done
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
}
address_of() { k get pod "$1" -o 'jsonpath={.status.podIP}'; }

make_pods
wait_until "the pods" k wait --for=condition=Ready pod/a pod/b pod/web --timeout=1s
for name in a b web; do
  [[ $(address_of $name) =~ ^10\.244\.0\.[0-9]+$ ]] || die "pod $name has the address $(address_of $name)"
done
k exec a -- ping -c 1 -W 3 "$(address_of b)" >/dev/null || die "a does not reach b"
second=$(k get pod b -o 'jsonpath={.status.podIPs[1].ip}')
[[ $second =~ ^fd00:10:244: ]] || die "the second address of b is $second"
k exec a -- ping -c 1 -W 3 "$second" >/dev/null || die "a does not reach b at $second"
k exec a -- ping -c 1 -W 3 192.168.5.1 >/dev/null || die "a does not reach the node"
k exec a -- ping -c 1 -W 3 192.168.5.2 >/dev/null || die "a does not reach a machine outside of the cluster"
k exec a -- ip address show lo | grep 'inet 127.0.0.1' >/dev/null || die "the loopback link of a pod is down"
on node busybox ping -c 1 -W 3 "$(address_of b)" >/dev/null || die "the node does not reach b"
fetch() {
  on "$1" python3 -c 'import sys, urllib.request
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=5).read().decode())' "$2"
}
greets() { fetch "$1" "$2" 2>/dev/null | grep hello >/dev/null; }
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
k exec b -- ping -c 1 -W 3 "$kept" >/dev/null || die "b does not reach a after a restart"

say "  deleted pods leave nothing behind"
k delete pod a b web --grace-period=1 --wait=true --timeout=60s >/dev/null
gone() { [ "$(footprint)" = "$before" ]; }
wait_until "links, routes and rules of deleted pods are gone" gone || { diff <(echo "$before") <(footprint); exit 1; }
on node python3 -c 'import json; assert json.load(open("/run/pintle/pods/attachments.json"))["attachments"] == []' ||
  die "addresses of deleted pods are still recorded"
say "the cluster works"
