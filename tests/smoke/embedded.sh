#!/usr/bin/env bash
# `pintle up` with the embedded runtime on a machine without containerd: a pod is run, called, followed, entered; the
# server is killed and comes back while the pod goes on; another machine joins, with runc as a handler; in the end nothing
# is left.
#
#   tests/smoke/embedded.sh --bench PROGRAM [ARGUMENT...]
#            measures the cluster with bench's program `node` instead
#   tests/smoke/embedded.sh --bench-node PROGRAM [ARGUMENT...]
#            the same on a machine that joined: the agent, the runtime, the network and the proxy without API server and loops
#
#   PINTLE   the binary to test (built when not given)
#
# It takes root, cgroups v1, iproute2, kubectl, Python 3 and busybox.
set -euo pipefail
bench=()
measured=m
case "${1:-}" in
--bench) bench=("${@:2}") ;;
--bench-node)
  bench=("${@:2}")
  measured=n
  ;;
esac
# shellcheck source=tests/smoke/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=tests/smoke/machines.sh
. "$(dirname "${BASH_SOURCE[0]}")/machines.sh"
test='EMBEDDED RUNTIME'
need_machines "$test"
for program in kubectl python3; do
  command -v $program >/dev/null || leave_out "$test LEFT OUT: there is no $program."
done
[ -x /bin/busybox ] || leave_out "$test LEFT OUT: there is no /bin/busybox for the image."
[ -d /sys/fs/cgroup/memory ] || leave_out "$test LEFT OUT: this machine has no cgroups v1."
[ -n "${binary:-}" ] || find_binary
binary=$(realpath "$binary")
group=pintle-$$

clear_groups() {
  local status=$? directory
  trap - EXIT
  set +e
  for name in "${!machines[@]}"; do kill -KILL "${machines[$name]}" 2>/dev/null; done
  sleep 0.5
  for directory in /sys/fs/cgroup/*/"$group"-*; do
    find "$directory" -depth -type d -exec rmdir {} \; 2>/dev/null
  done
  (exit "$status")
  clear_machines
}
trap clear_groups EXIT

# Makes a machine with an address, folders and control groups of its own.
make_node() {
  local name=$1 address=$2 directory file
  make_machine "$name"
  plug "$name" lan eth0 "$address/24"
  on "$name" ip route add default via 192.168.9.254 dev eth0
  mkdir -p "$scratch/$name"/{cni,opt,log,data,etc}
  for directory in /sys/fs/cgroup/*/; do
    [ ! -e "$directory/cgroup.procs" ] || mkdir -p "$directory/$group-$name"
  done
  for file in cpuset.cpus cpuset.mems; do
    [ ! -e /sys/fs/cgroup/cpuset ] || cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$group-$name/$file"
  done
  mkdir -p /etc/cni /opt/cni /etc/pintle
  on "$name" bash -euc "mount --make-rshared /; mount --bind '$scratch/$name/log' /var/log
    mount --bind '$scratch/$name/etc' /etc/pintle
    mount --bind '$scratch/$name/cni' /etc/cni; mount --bind '$scratch/$name/opt' /opt/cni; mount --make-rshared /
    printf '127.0.0.1 localhost\n$address $name\n' >'$scratch/$name/hosts'; mount --bind '$scratch/$name/hosts' /etc/hosts"
  cat >"$scratch/$name/agent.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupRoot: /$group-$name
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
END
  # the rates of the peer when it was measured
  [ ${#bench[@]} -eq 0 ] || printf '%s\n' 'kubeAPIQPS: 100' 'kubeAPIBurst: 200' >>"$scratch/$name/agent.yaml"
}
say "a machine without a container runtime"
make_switch lan
make_node m 192.168.9.1

say "an image"
python3 - "$scratch/image.tar" <<'END'
import hashlib, io, json, sys, tarfile
def archive(entries, out):
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            if kind == tarfile.SYMTYPE: info.linkname = data
            if kind == tarfile.REGTYPE: info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
layer = io.BytesIO()
busybox = open("/bin/busybox", "rb").read()
names = ["sh", "echo", "cat", "httpd", "sleep", "date", "ps", "hostname", "mkdir", "wget"]
archive([("bin", tarfile.DIRTYPE, None), ("tmp", tarfile.DIRTYPE, None), ("pipe", tarfile.FIFOTYPE, None),
         ("bin/busybox", tarfile.REGTYPE, busybox)]
        + [(f"bin/{name}", tarfile.SYMTYPE, "busybox") for name in names], layer)
# one process that ends at its signal, as a pause program does: the first process of a container ignores others
command = ["sh", "-c", "trap exit TERM; read line <>/pipe"]
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": command}, "rootfs": {"type": "layers",
    "diff_ids": ["sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()]}}).encode()
manifest = json.dumps([{"Config": "config.json", "RepoTags": ["example.test/web:1"], "Layers": ["layer.tar"]}]).encode()
with open(sys.argv[1], "wb") as out:
    archive([("layer.tar", tarfile.REGTYPE, layer.getvalue()), ("config.json", tarfile.REGTYPE, config),
             ("manifest.json", tarfile.REGTYPE, manifest)], out)
END
on m "$binary" images import --data-dir "$scratch/m/data" "$scratch/image.tar"
on m "$binary" images list --data-dir "$scratch/m/data" | grep -q '^example.test/web:1 ' || die "the image is not listed"

kube() { on m kubectl --kubeconfig "$scratch/m/kubeconfig" "$@"; }
start_up() {
  start_on m up "$binary" up --data-dir "$scratch/m/data" --write-kubeconfig "$scratch/m/kubeconfig" \
    --runtime "$1" --bind-address 0.0.0.0 --nodeagent-config "$scratch/m/agent.yaml"
  wait_until "the API server" kube get --raw /readyz
}
say "pintle up"
start_up embedded
wait_until "the embedded runtime" grep -q 'by the embedded runtime' "$scratch/logs/m.up"
wait_until "the node" kube wait --for=condition=Ready node/m --timeout=1s
wait_until "the service account" kube get serviceaccount default
# Makes a second machine, and joins it to the cluster.
join_node() {
  local join
  make_node n 192.168.9.2
  on n "$binary" images import --data-dir "$scratch/n/data" "$scratch/image.tar"
  read -r -a join <<<"$(on m "$binary" token create --kubeconfig "$scratch/m/kubeconfig")"
  start_on n join "$binary" "${join[@]:1}" --data-dir "$scratch/n/data" --runtime embedded \
    --nodeagent-config "$scratch/n/agent.yaml"
  wait_until "the second node" kube wait --for=condition=Ready node/n --timeout=1s
}
if [ ${#bench[@]} -gt 0 ]; then
  [ "$measured" = m ] || join_node
  process=$([ "$measured" = m ] && echo up || echo join)
  on "$measured" cp "/run/$process.pid" "/sys/fs/cgroup/cpuacct/$group-$measured/cgroup.procs"
  sed 's/127\.0\.0\.1/192.168.9.1/' "$scratch/m/kubeconfig" >"$scratch/kubeconfig"
  on "$measured" "${bench[0]}" --kubeconfig "$scratch/kubeconfig" --node "$measured" \
    --agent-pid "$(on "$measured" cat "/run/$process.pid")" \
    --cpu-cgroup "/sys/fs/cgroup/cpuacct/$group-$measured" --image example.test/web:1 "${bench[@]:1}"
  exit 0
fi
before=$(on m grep -c . /proc/self/mountinfo)

say "a pod"
kube run web --image example.test/web:1 --port 80 -- sh -c \
  'mkdir /www; echo hello >/www/index.html; httpd -p 80 -h /www; n=0; while :; do echo line $n; n=$((n+1)); sleep 0.1; done' >/dev/null
kube wait --for=condition=Ready pod/web --timeout=60s >/dev/null
address=$(kube get pod web -o 'jsonpath={.status.podIP}')
answer() { on m busybox wget -qO- "http://$address/"; }
wait_until "the page" answer
[ "$(answer)" = hello ] || die "the pod does not serve its page"
[ "$(kube exec web -- hostname)" = web ] || die "exec does not work"
wait_until "the log" bash -c "[ -n \"\$1\" ]" _ "$(kube logs web --tail=1)"
start_on m forward kubectl --kubeconfig "$scratch/m/kubeconfig" port-forward pod/web 8080:80
wait_until "the forwarded port" on m busybox wget -qO- http://127.0.0.1:8080/
stop_on m forward

say "the server is killed, and the pod goes on"
identity() { kube get pod web -o 'jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'; }
was=$(identity)
on m bash -c 'kill -KILL "$(cat /run/up.pid)"'
wait "${started[m.up]}" 2>/dev/null || true
[ "$(answer)" = hello ] || die "the pod ended with the server"
lines() { cat "$scratch"/m/log/pods/default_web_*/web/*.log | wc -l; }
count=$(lines)
wait_until "lines of the log without a server" bash -c "[ \"\$(cat '$scratch'/m/log/pods/default_web_*/web/*.log | wc -l)\" -gt $count ]"
start_up auto
wait_until "the node" kube wait --for=condition=Ready node/m --timeout=1s
kube wait --for=condition=Ready pod/web --timeout=60s >/dev/null
[ "$(identity)" = "$was" ] || die "the container is another one: $was, then $(identity)"
[ "$(answer)" = hello ] || die "the pod does not serve its page"
kube logs web >"$scratch/lines"
python3 - "$scratch/lines" <<'END' || die "lines of the log are lost"
import sys
numbers = [int(line.split()[1]) for line in open(sys.argv[1])]
sys.exit(numbers != list(range(len(numbers))))
END
[ "$(kube exec web -- hostname)" = web ] || die "exec does not work after the restart"

say "another machine joins, with runc as a handler"
join_node
# Runs a pod on the second machine, and looks at it.
run_there() {
  local name=$1 class=$2
  kube run "$name" --image example.test/web:1 --overrides \
    "{\"spec\": {\"nodeName\": \"n\", \"runtimeClassName\": $class}}" -- sh -c 'echo started; exec sleep 1000' >/dev/null
  kube wait --for=condition=Ready "pod/$name" --timeout=60s >/dev/null
  [ "$(kube exec "$name" -- hostname)" = "$name" ] || die "exec does not work on the second machine"
  [ "$(kube logs "$name")" = started ] || die "the log of the second machine differs"
}
run_there there null
if [ -x /usr/sbin/runc ]; then
  mkdir -p "$scratch/n/etc/runtime-handlers"
  ln -s /usr/sbin/runc "$scratch/n/etc/runtime-handlers/runc"
  printf '{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "oci"}, "handler": "runc"}' |
    kube create -f - >/dev/null
  run_there by-runc '"oci"'
  [ -n "$(on n find /run/pintle/runtime -path '*/oci/*/state.json')" ] || die "the pod is not one of runc"
  kube delete pod by-runc --grace-period=1 >/dev/null
fi
kube delete pod there --grace-period=1 >/dev/null

say "nothing is left"
kube delete pod web --grace-period=1 >/dev/null
none_left() { ! on "$1" pgrep -f ' runtime-monitor$' && [ -z "$(ls "$scratch/$1/data/node/runtime/sandboxes")" ]; }
wait_until "the end of the monitors" none_left m
wait_until "the end of the monitors of the second machine" none_left n
[ "$(on m grep -c . /proc/self/mountinfo)" = "$before" ] || die "mounts are left: $before before"
[ -z "$(find /sys/fs/cgroup/*/"$group"-* -path '*kubepods*/pod*' -type d)" ] || die "control groups are left"
stop_on n join
stop_on m up
! on n grep "$scratch/n/data" /proc/self/mountinfo || die "mounts are left below the data directory of the second machine"
! on m grep "$scratch/m/data" /proc/self/mountinfo || die "mounts are left below the data directory"
say "ok"
