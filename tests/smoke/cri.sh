#!/usr/bin/env bash
# `pintle runtime` under its real clients: crictl (pods, containers, exec, logs, port-forward, stats, images, inspect)
# and critest, the validation suite of the CRI. The images are made here and served by a local registry.
#
#   tests/smoke/cri.sh [FOCUS]   only the cases of critest whose names match
#
#   PINTLE     the binary to test (built when not given)
#   CRI_TOOLS  a folder with crictl and critest; without one they are built from the Go module into ~/.cache, which
#              takes minutes once
#
# It takes root, cgroups v1, CNI plugins, iproute2, Python 3, gcc, busybox, and Go unless CRI_TOOLS is given.
set -euo pipefail
# shellcheck source=tests/smoke/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=tests/smoke/machines.sh
. "$(dirname "${BASH_SOURCE[0]}")/machines.sh"
test='THE RUNTIME AS THE CRI'
version=v1.26.1
focus=${1:-}

# Cases of critest that are left out, each with the reason; another one that is skipped is an error. Where the kernel lacks
# AppArmor or SELinux, critest does not have their cases.
skipped=(
  # five cases that measure and verify nothing; critest leaves them out itself without -benchmark
  'benchmark about'
  # the digest is that of an image that only the public registry has
  'public image with digest should be pulled and removed'
)

need_machines "$test"
for program in python3 gcc ipcmk iptables; do
  command -v $program >/dev/null || leave_out "$test LEFT OUT: there is no $program."
done
[ -x /bin/busybox ] || leave_out "$test LEFT OUT: there is no /bin/busybox for the images."
# the shell of some builds runs its own ls and does not look at the masked file
if /bin/busybox sh -c 'PATH=/nowhere; ls /' >/dev/null 2>&1; then skipped+=('runtime should support MaskedPaths'); fi
[ -x /usr/lib/cni/bridge ] || leave_out "$test LEFT OUT: there are no CNI plugins in /usr/lib/cni."
[ -d /sys/fs/cgroup/memory ] || leave_out "$test LEFT OUT: this machine has no cgroups v1."

# The module names its Kubernetes dependencies by commits; releases of the same version are easier to get.
build_tools() {
  local module
  module=$(cd "$scratch" && GOFLAGS=-mod=mod go mod download -json "github.com/kubernetes-sigs/cri-tools@$version" |
    sed -n 's/.*"Dir": "\(.*\)".*/\1/p') || return 1
  [ -n "$module" ] || return 1
  cp -r "$module" "$scratch/cri-tools" && chmod -R u+w "$scratch/cri-tools" || return 1
  (
    cd "$scratch/cri-tools" && rm -f go.sum || exit 1
    sed -i -E 's#^\tk8s.io/([a-z-]+) => k8s.io/kubernetes/staging/.*#\tk8s.io/\1 => k8s.io/\1 v0.26.0#' go.mod
    export GOFLAGS=-mod=mod
    mkdir -p "$tools"
    go build -o "$tools/crictl" ./cmd/crictl && go test -c -o "$tools/critest.new" ./cmd/critest &&
      mv "$tools/critest.new" "$tools/critest"
  )
}
tools=${CRI_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/pintle/cri-tools-$version}
if [ ! -x "$tools/crictl" ] || [ ! -x "$tools/critest" ]; then
  command -v go >/dev/null || leave_out "$test LEFT OUT: there is no crictl, and no Go to build it."
  say "building crictl and critest $version"
  build_tools >"$scratch/build.log" 2>&1 ||
    { tail -n 5 "$scratch/build.log" && leave_out "$test LEFT OUT: crictl and critest cannot be built."; }
fi
[ -n "${binary:-}" ] || find_binary
binary=$(realpath "$binary")

clear_groups() {
  local status=$? name directory
  trap - EXIT
  set +e
  for name in "${!machines[@]}"; do kill -KILL "${machines[$name]}" 2>/dev/null; done
  sleep 0.5
  for directory in /sys/fs/cgroup/*/pintle; do
    find "$directory" -depth -type d -exec rmdir {} \; 2>/dev/null
  done
  (exit "$status")
  clear_machines
}
trap clear_groups EXIT

say "a machine with CNI plugins and a registry"
make_switch lan
make_machine m
plug m lan eth0 192.168.9.1/24
on m ip route add default via 192.168.9.254 dev eth0
mkdir -p "$scratch"/{cni,registries/gcr.io,registries/registry.k8s.io,lib,images}
cat >"$scratch/cni/10-bridge.conflist" <<END
{"cniVersion": "0.4.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam":
    {"type": "host-local", "subnet": "10.88.0.0/16", "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni"}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
END
for registry in gcr.io registry.k8s.io; do
  printf '[host."http://127.0.0.1:5000"]\ncapabilities = ["pull", "resolve"]\n' >"$scratch/registries/$registry/hosts.toml"
done
on m bash -euc 'mount --make-rshared /; echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet'
start_on m registry python3 "$repository/tests/smoke/cri_registry.py" "$scratch/images" 5000
wait_until "the registry" on m busybox wget -qO- http://127.0.0.1:5000/v2/

socket=unix:///run/pintle/runtime.sock
start_runtime() {
  start_on m runtime "$binary" runtime --root-dir "$scratch/lib" --cni-conf-dir "$scratch/cni" \
    --registries "$scratch/registries" --stream-idle-timeout 1m
  wait_until "the runtime" on m "$tools/crictl" --runtime-endpoint $socket version
}
crictl() { on m "$tools/crictl" --runtime-endpoint $socket --image-endpoint $socket --timeout 30s "$@"; }
start_runtime
crictl info | grep -q '"type": "NetworkReady"' || die "crictl info has no conditions"

say "crictl"
busybox=registry.k8s.io/e2e-test-images/busybox:1.29-2
web=registry.k8s.io/e2e-test-images/nginx:1.14-2
mkdir -p "$scratch/pod-logs"
cat >"$scratch/pod.json" <<END
{"metadata": {"name": "web", "namespace": "default", "uid": "u1", "attempt": 1}, "hostname": "web",
 "labels": {"app": "web"}, "log_directory": "$scratch/pod-logs", "linux": {"cgroup_parent": "/pintle/pod-u1"}}
END
cat >"$scratch/shell.json" <<END
{"metadata": {"name": "shell"}, "image": {"image": "$busybox"}, "log_path": "shell.log", "labels": {"app": "shell"},
 "command": ["sh", "-c", "echo started; exec sleep 1000"]}
END
cat >"$scratch/web.json" <<END
{"metadata": {"name": "web"}, "image": {"image": "$web"}, "log_path": "web.log"}
END
crictl pull $busybox >/dev/null
crictl pull $web >/dev/null
crictl images | grep -q '^registry.k8s.io/e2e-test-images/nginx *1.14-2 ' || die "the image is not listed"
crictl inspecti $busybox | grep -q '"repoTags"' || die "inspecti does not work"
pod=$(crictl runp "$scratch/pod.json")
[ "$(crictl pods -q --label app=web)" = "$pod" ] || die "the pod is not found by its label"
[ -z "$(crictl pods -q --label app=other)" ] || die "a filter does not filter"
shell=$(crictl create "$pod" "$scratch/shell.json" "$scratch/pod.json")
server=$(crictl create "$pod" "$scratch/web.json" "$scratch/pod.json")
crictl start "$shell" >/dev/null
crictl start "${server:0:13}" >/dev/null
[ "$(crictl ps -q --state running | sort)" = "$(printf '%s\n' "$shell" "$server" | sort)" ] || die "ps differs"
[ "$(crictl exec -s "${shell:0:13}" hostname)" = web ] || die "exec -s does not work"
[ "$(crictl exec "$shell" sh -c 'echo out; echo err >&2' 2>/dev/null)" = out ] || die "exec does not work"
if crictl exec "$shell" sh -c 'exit 3' 2>"$scratch/exec.err"; then die "an exit code is lost"; fi
grep -q 'exit code 3' "$scratch/exec.err" || die "an exit code is lost: $(cat "$scratch/exec.err")"
[ "$(crictl logs "$shell")" = started ] || die "the log differs"
crictl inspect "$shell" | grep -q '"sandboxID": "'"$pod"'"' || die "inspect has no details"
crictl inspectp "$pod" | grep -q '"ip": "10.88.' || die "inspectp has no address"
crictl stats | grep -q "^${shell:0:13} " || die "stats lacks a container"
crictl statsp | grep -q "^${pod:0:13} \|web" || die "statsp lacks the pod"
crictl update --cpu-share 512 "$shell" >/dev/null
[ "$(cat /sys/fs/cgroup/cpu/pintle/pod-u1/"$shell"/cpu.shares)" = 512 ] || die "resources are not updated"
start_on m forward "$tools/crictl" --runtime-endpoint $socket port-forward "$pod" 21080:80
wait_until "the forwarded port" on m busybox wget -qO- http://127.0.0.1:21080/
stop_on m forward

say "the server is stopped, and containers go on"
stop_on m runtime
start_runtime
[ "$(crictl ps -q --state running | wc -l)" = 2 ] || die "a container is lost"
crictl stop --timeout 1 "$server" >/dev/null
[ "$(crictl ps -q --state exited)" = "$server" ] || die "stop does not work"
crictl rm "$server" >/dev/null
crictl stopp "$pod" >/dev/null
crictl rmp "$pod" >/dev/null
[ -z "$(crictl pods -q)$(crictl ps -aq)" ] || die "something is left"
crictl rmi $web >/dev/null
! crictl inspecti $web >/dev/null 2>&1 || die "the image is still there"

say "critest"
mkdir -p "$scratch/report"
skip=$(printf '|%s' "${skipped[@]}")
status=0
on m "$tools/critest" --runtime-endpoint $socket --image-endpoint $socket --ginkgo.skip "${skip:1}" \
  --ginkgo.focus "$focus" --ginkgo.no-color --ginkgo.junit-report "$scratch/report/critest.xml" \
  >"$scratch/critest.log" 2>&1 || status=$?
grep -E '^Ran |^(FAIL|SUCCESS)!|^ *\[FAIL\]' "$scratch/critest.log" | sort -u
for name in "${skipped[@]}"; do say "left out: $name"; done
if [ $status -eq 0 ] && [ -z "$focus" ]; then
  python3 - "$scratch/report/critest.xml" "${skipped[@]}" <<'END' || die "critest skipped other cases"
import sys
import xml.etree.ElementTree
cases = xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase")
left_out = [it.get("name") for it in cases if it.find("skipped") is not None]
unknown = [it for it in left_out if not any(name in it for name in sys.argv[2:])]
print(f"{len(left_out)} cases are left out", *unknown, sep="\n")
sys.exit(bool(unknown))
END
fi
if [ $status -ne 0 ]; then
  [ -z "${CRITEST_LOG:-}" ] || cp "$scratch/critest.log" "$CRITEST_LOG"
  die "critest failed (CRITEST_LOG=FILE keeps its output)"
fi
[ -z "$(crictl pods -q)$(crictl ps -aq)" ] || die "critest left something"

say "nothing is left"
none_left() { ! on m pgrep -f ' runtime-monitor$' && [ -z "$(ls "$scratch/lib/runtime/sandboxes")" ]; }
wait_until "the end of the monitors" none_left
stop_on m runtime
say "ok"
