#!/usr/bin/env bash
# Two machines become one cluster, and a claim keeps its data: `pintle up` on the first, `pintle token create`,
# `pintle join` on the second, a stateful set with volumes on both, a server that gets another address, `pintle leave`.
# Each machine has network, mount, process, host name and IPC namespaces of its own, and its own containerd; a veth pair
# joins them.
#
#   PINTLE       the binary to test (built when not given)
#   PINTLE_NODE  the folder with the sources of images (../shared/tools/node beside the repository)
#
# It takes root, cgroup v1 controllers, containerd with its plugins, kubectl, gcc and busybox-static for the images, and
# Python 3.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
tools=${PINTLE_NODE:-$repository/../shared/tools/node}

leave_out() {
  say "######################################################################"
  say "## JOIN LEFT OUT: $*"
  say "######################################################################"
  exit 0
}
[ -d "$tools" ] || leave_out "there are no sources of images at $tools"
tools=$(realpath "$tools")
[ "$(id -u)" = 0 ] || leave_out "pods take root"
[ -d /sys/fs/cgroup/memory ] || leave_out "this machine has no cgroup v1 controllers"
for program in containerd ctr runc kubectl gcc ip nsenter python3; do
  command -v "$program" >/dev/null || leave_out "$program is missing"
done
[ -x /bin/busybox ] || leave_out "busybox-static is missing"
unshare -m -n -p -u -i --fork true 2>/dev/null || leave_out "this machine allows no namespaces"
find_binary

controllers='cpu cpuacct cpuset memory devices freezer blkio pids systemd unified'
declare -A holders=()
log=$scratch/log
mkdir -p "$log" "$scratch/images"

inside() {
  local machine=$1
  shift
  nsenter -t "${holders[$machine]}" -m -n -p -u -i "$@"
}
# Starts a program on a machine, with a log and a file with its process id as seen there.
start() {
  local machine=$1 name=$2
  shift 2
  # shellcheck disable=SC2016 # the shell inside expands its own process id
  inside "$machine" bash -c 'echo $$ >"$0"; exec "$@"' "$scratch/$machine/$name.pid" "$@" \
    >>"$log/$machine-$name.log" 2>&1 </dev/null &
}
stop() {
  local pid
  pid=$(cat "$scratch/$1/$2.pid")
  inside "$1" kill -TERM "$pid"
  wait_until "the end of $2" not inside "$1" kill -0 "$pid"
}
not() { ! "$@"; }
containers() { inside "$1" ctr -a /run/containerd/containerd.sock -n k8s.io "${@:2}"; }
kube() { inside one kubectl --kubeconfig "$scratch/one/data/admin.kubeconfig" "$@"; }
wait_until() {
  local what=$1 waited=0
  shift
  until "$@" >/dev/null 2>&1; do
    [ $((waited += 1)) -lt 360 ] || die "$what did not happen within three minutes"
    sleep 0.5
  done
}
has_line() { grep -q -- "$2" "$1"; }

clear_machines() {
  local status=$? machine task controller
  set +e
  trap - EXIT
  if [ "$status" -ne 0 ]; then
    for file in "$log"/*; do
      say "--- $(basename "$file")" >&2
      tail -n 15 "$file" >&2
    done
  fi
  for machine in "${!holders[@]}"; do
    for task in $(containers "$machine" tasks ls -q 2>/dev/null); do
      containers "$machine" tasks kill -s KILL -a "$task" >/dev/null 2>&1
    done
    sleep 1
    kill -KILL "${holders[$machine]}" 2>/dev/null
  done
  sleep 1
  for machine in one two; do
    for controller in $controllers; do
      find "/sys/fs/cgroup/$controller/pintle-$$-$machine" -depth -type d -exec rmdir {} \; 2>/dev/null
    done
  done
  (exit "$status")
  leave
}
trap clear_machines EXIT

# Makes a machine: namespaces, files of its own, cgroups and containerd. It has no CNI plugins but those of the program.
make_machine() {
  local machine=$1 state=$scratch/$1 outer controller file
  mkdir -p "$state"/{log,cni,plugins,data}
  for controller in $controllers; do
    [ ! -d "/sys/fs/cgroup/$controller" ] || mkdir -p "/sys/fs/cgroup/$controller/pintle-$$-$machine"
  done
  for file in cpuset.cpus cpuset.mems; do
    cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/pintle-$$-$machine/$file"
  done
  unshare -m -n -p -u -i --fork --mount-proc --propagation private \
    bash -c 'trap : TERM; while :; do sleep 1000 & wait; done' </dev/null >/dev/null 2>&1 &
  outer=$!
  for _ in $(seq 50); do
    holders[$machine]=$(pgrep -P "$outer" || true)
    [ -z "${holders[$machine]}" ] || break
    sleep 0.1
  done
  [ -n "${holders[$machine]}" ] || die "the namespaces of $machine were not made"
  inside "$machine" bash -euc "
    hostname $machine; mount --make-rshared /
    mount -t tmpfs tmpfs /run; mkdir -p /run/netns /run/lock /run/containerd
    mkdir -p /etc/cni/net.d; mount --bind $state/cni /etc/cni/net.d; mount --bind $state/log /var/log
    mount --make-rshared /
    ip link set lo up"
  sed "s#STATE#$state#; s#/run/rec-containerd#/run/containerd#g; s#/usr/lib/cni#$state/plugins#" "$tools/containerd.toml" >"$state/containerd.toml"
  cat >"$state/agent.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /pintle-$$-$machine
failSwapOn: false
nodeStatusUpdateFrequency: 2s
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
END
  start "$machine" containerd containerd -c "$state/containerd.toml"
  wait_until "containerd on $machine" containers "$machine" version
  for file in "$scratch"/images/*.tar; do
    [ "$(basename "$file")" = pulled.tar ] || containers "$machine" images import --base-name x "$file" >/dev/null
  done
}

say "making images"
python3 "$tools/images/make.py" "$scratch/images" >"$log/images.log" 2>&1 || leave_out "the images cannot be made"
say "making two machines"
make_machine one
make_machine two
nsenter -t "${holders[one]}" -n ip link add eth0 type veth peer name eth0 netns "${holders[two]}"
for pair in one:10.78.0.1 two:10.78.0.2; do
  inside "${pair%%:*}" bash -euc "ip addr add ${pair#*:}/24 dev eth0; ip link set eth0 up
    ip route add default via 10.78.0.254 dev eth0 onlink; echo 1 >/proc/sys/net/ipv4/ip_forward"
done

say "pintle up on the first"
start one server "$binary" up --data-dir "$scratch/one/data" --bind-address 0.0.0.0 --secure-port 6443 \
  --nodeagent-config "$scratch/one/agent.yaml"
wait_until "the server" kube get --raw /readyz
wait_until "the first node" kube wait --for=condition=Ready node/one --timeout=1s

say "pintle token create"
line=$(inside one "$binary" token create --data-dir "$scratch/one/data" 2>"$log/token.log")
case $line in
  "pintle join https://10.78.0.1:6443 --token "*" --discovery-token-ca-cert-hash sha256:"*) ;;
  *) cat "$log/token.log" && die "token create printed: $line" ;;
esac
[ ! -s "$log/token.log" ] || die "a warning: $(cat "$log/token.log")"
read -r -a words <<<"$line"
url=${words[2]} token=${words[4]} hash=${words[6]}

say "a server that only this machine reaches"
start one local "$binary" up --ephemeral --components apiserver,controller-manager --secure-port 7443 \
  --write-kubeconfig "$scratch/one/local.kubeconfig"
wait_until "the local server" inside one kubectl --kubeconfig "$scratch/one/local.kubeconfig" get --raw /readyz
inside one "$binary" token create --kubeconfig "$scratch/one/local.kubeconfig" >/dev/null 2>"$log/warning.log"
has_line "$log/warning.log" 'start the server with --bind-address 0.0.0.0' || die "there is no warning: $(cat "$log/warning.log")"
stop one local

# Joins as the second machine, and expects a refusal with a text.
refused() {
  local part=$1 output
  shift
  if output=$(inside two timeout 60 "$binary" join --data-dir "$scratch/two/refused" "$@" 2>&1); then
    die "a join was not refused: $*"
  fi
  case $output in *"$part"*) ;; *) die "the refusal of $* has no '$part': $output" ;; esac
  [ ! -e "$scratch/two/refused/node/kubeconfig" ] || die "a refused join has left a kubeconfig"
}
say "joins that are refused"
wrong=$(printf '%064d' 7)
refused 'is missing: run pintle token create' "$url"
refused 'another server could take the place' "$url" --token "$token"
refused 'is not the one of --discovery-token-ca-cert-hash' "$url" --token "$token" --discovery-token-ca-cert-hash "sha256:$wrong"
refused 'is not signed with the token' "$url" --token "${token%%.*}.0123456789abcdef" --discovery-token-ca-cert-hash "$hash"
refused 'does not know the token' "$url" --token aaaaaa.0123456789abcdef --discovery-token-ca-cert-hash "$hash"
refused 'check the address' https://10.78.0.1:6444 --token "$token" --discovery-token-ca-cert-hash "$hash"
# a server in between has the cluster information, which is public, but not the key of the authority
if command -v openssl >/dev/null; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=between \
    -addext 'subjectAltName=IP:10.78.0.1' -keyout "$scratch/one/between.key" -out "$scratch/one/between.crt" 2>/dev/null
  kube -n kube-public get configmap cluster-info -o json >"$scratch/one/cluster-info.json"
  cat >"$scratch/one/between.py" <<'END'
import http.server, ssl, sys
folder = sys.argv[1]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open(f"{folder}/cluster-info.json", "rb").read()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("10.78.0.1", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{folder}/between.crt", f"{folder}/between.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
END
  start one between python3 "$scratch/one/between.py" "$scratch/one"
  wait_until "the server in between" inside two bash -c 'exec 3<>/dev/tcp/10.78.0.1/8443'
  refused 'another server answers there' https://10.78.0.1:8443 --token "$token" --discovery-token-ca-cert-hash "$hash"
  stop one between
fi
short=$(inside one "$binary" token create --ttl 1s --data-dir "$scratch/one/data" 2>/dev/null)
read -r -a words <<<"$short"
wait_until "the end of a short token" not kube -n kube-system get secret "bootstrap-token-${words[4]%%.*}"
refused 'does not know the token' "$url" --token "${words[4]}" --discovery-token-ca-cert-hash "$hash"
[ "$(inside one "$binary" token list --data-dir "$scratch/one/data" | wc -l)" = 2 ] || die "token list has another length"

say "pintle check on both"
inside two "$binary" check --for join --data-dir "$scratch/two/data" --nodeagent-config "$scratch/two/agent.yaml" \
  >"$log/check.log" || die "pintle check: $(cat "$log/check.log")"
inside one "$binary" check --data-dir "$scratch/one/data" --nodeagent-config "$scratch/one/agent.yaml" \
  >"$log/check.log" || die "pintle check: $(cat "$log/check.log")"
has_line "$log/check.log" 'pintle runs here already: 127.0.0.1:6443' || die "pintle check: $(cat "$log/check.log")"

say "pintle join on the second"
join() { start two join "$binary" join --data-dir "$scratch/two/data" --nodeagent-config "$scratch/two/agent.yaml" "$@"; }
join "$url" --token "$token" --discovery-token-ca-cert-hash "$hash"
for part in "found the cluster at $url" 'certificate issued to system:node:two' 'node two is Ready'; do
  wait_until "the line '$part'" has_line "$log/two-join.log" "$part"
done
wait_until "the second node" kube wait --for=condition=Ready node/two --timeout=1s
say "$(kube get nodes --no-headers | wc -l) nodes"
inside one "$binary" token delete "$token" --data-dir "$scratch/one/data" >/dev/null

say "a page by the name of a service, from one machine to the other"
kube apply -f - >/dev/null <<'END'
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
        command: [sh, -c, 'mkdir -p /www; echo "the page of $(hostname)" >/www/index.html; httpd -f -p 80 -h /www']
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, nodePort: 30080}]
END
wait_until "the pages" kube rollout status daemonset/web --timeout=1s
pod_on() { kube get pods -l app=web --field-selector "spec.nodeName=$1" -o 'jsonpath={.items[0].metadata.name}'; }
# Every page by the name of the service, from a pod of a machine.
sees_both() {
  local pages
  pages=$(kube exec "$(pod_on "$1")" -- sh -c 'for n in 1 2 3 4 5 6 7 8 9 10 11 12; do wget -q -O - http://web.default.svc.cluster.local/; done') || return 1
  [ "$(sort -u <<<"$pages" | wc -l)" = 2 ]
}
for machine in one two; do
  wait_until "both pages on $machine" sees_both "$machine"
  wait_until "the short name on $machine" kube exec "$(pod_on "$machine")" -- wget -q -O - http://web/
done
for address in 10.78.0.1 10.78.0.2; do
  wait_until "the node port at $address" inside two /bin/busybox wget -q -O - "http://$address:30080/"
done
say "a policy keeps other pods away, on both machines"
kube run client --image registry.test/busybox:1 --labels app=client --command -- sleep 1000 >/dev/null
wait_until "the client" kube wait --for=condition=Ready pod/client --timeout=1s
wait_until "the client's page" kube exec client -- timeout 3 wget -q -O - http://web/
kube apply -f - >/dev/null <<'END'
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}
END
address_on() { kube get pod "$(pod_on "$1")" -o 'jsonpath={.status.podIP}'; }
for machine in one two; do
  wait_until "the policy on $machine" not kube exec client -- timeout 2 wget -q -O - "http://$(address_on "$machine")/"
  wait_until "both pages on $machine" sees_both "$machine"
done
kube delete networkpolicy web >/dev/null
wait_until "the end of the policy" kube exec client -- timeout 3 wget -q -O - http://web/
kube delete pod client --now >/dev/null
wait_until "the usage of both nodes" eval '[ "$(kube top nodes --no-headers | grep -c %)" = 2 ]'
kube delete daemonset,service web >/dev/null

say "a stateful set with volumes on both machines"
wait_until "the default class" kube get storageclass local
kube apply -f - >/dev/null <<'END'
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 1234, runAsGroup: 1234, fsGroup: 2345}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: db}}}
      containers:
      - name: c
        image: registry.test/busybox:1
        command: [sh, -c, 'echo "start of $(hostname)" >>/data/starts; sleep 1000']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
END
wait_until "both pods" kube wait --for=condition=Ready pod/db-0 pod/db-1 --timeout=1s
starts() { kube exec "$1" -- cat /data/starts; }
has_starts() { [ "$(starts "$1" | wc -l)" = "$2" ]; }
wait_until "the first start" has_starts db-0 1
before=$(kube get pod db-0 -o 'jsonpath={.spec.nodeName}')
# kubectl would wait for ever for the deletion of a pod that is there again before it looks
uids() { kube get pod db-0 db-1 -o 'jsonpath={.items[*].metadata.uid}' 2>/dev/null; }
are_others() {
  local now
  now=$(uids) && [ "${now% *}" != "${1% *}" ] && [ "${now#* }" != "${1#* }" ]
}
replace_pods() {
  local replaced
  replaced=$(uids)
  kube delete pod db-0 db-1 --wait=false >/dev/null
  wait_until "other pods" are_others "$replaced"
  wait_until "both pods again" kube wait --for=condition=Ready pod/db-0 pod/db-1 --timeout=1s
}
replace_pods
wait_until "a second start with the data of the first" has_starts db-0 2
wait_until "a second start with the data of the first" has_starts db-1 2
[ "$(kube get pod db-0 -o 'jsonpath={.spec.nodeName}')" = "$before" ] || die "the pod has moved away from its data"
[ "$(kube exec db-0 -- stat -c %g /data/starts)" = 2345 ] || die "the file has not the group of the volume"

say "a second run continues, also at another address of the server"
stop two join
inside one ip addr add 10.78.0.9/24 dev eth0
if inside two timeout 60 "$binary" join https://10.78.0.9:6443 --data-dir "$scratch/two/data" >"$log/move.log" 2>&1; then
  die "a server without a certificate for its address was accepted"
fi
has_line "$log/move.log" 'start the server with --tls-san' || die "$(cat "$log/move.log")"
stop one server
inside one bash -euc 'ip addr flush dev eth0; ip addr add 10.78.0.10/24 dev eth0; ip addr add 10.78.0.9/24 dev eth0
  ip route add default via 10.78.0.254 dev eth0 onlink'
start one server "$binary" up --data-dir "$scratch/one/data" --bind-address 0.0.0.0 --secure-port 6443 \
  --advertise-address 10.78.0.10 --tls-san 10.78.0.9 --nodeagent-config "$scratch/one/agent.yaml"
wait_until "the server" kube get --raw /readyz
: >"$log/two-join.log"
join https://10.78.0.9:6443
wait_until "a second run" has_line "$log/two-join.log" 'continuing as the node two of the cluster at https://10.78.0.9:6443'
wait_until "the second node" kube wait --for=condition=Ready node/two --timeout=1s
wait_until "a pod on the one machine" kube exec db-0 -- true
wait_until "a pod on the other" kube exec db-1 -- true
say "a node goes on with another address that the cluster advertises"
wait_until "the addresses of the servers" has_line "$scratch/two/data/node/servers" https://10.78.0.10:6443
inside one ip addr del 10.78.0.9/24 dev eth0
wait_until "the other address" has_line "$log/two-join.log" 'going on with https://10.78.0.10:6443'
replace_pods

say "pintle leave"
leave_two() { inside two "$binary" leave --data-dir "$scratch/two/data" "$@"; }
if leave_two >"$log/leave.log" 2>&1; then die "a node left with the data of a claim"; fi
has_line "$log/leave.log" 'is on this machine only' || die "$(cat "$log/leave.log")"
kube delete statefulset db >/dev/null
kube delete pvc --all --wait=true >/dev/null
wait_until "the end of the volumes" not kube get pv -o 'jsonpath={.items[0]}'
[ -z "$(ls -A "$scratch/two/data/node/local-volumes")" ] || die "a folder is left on the second machine"
kube create deployment web --image registry.test/busybox:1 --replicas 2 -- sleep 1000 >/dev/null
wait_until "the deployment" kube rollout status deployment/web --timeout=1s
say "with the credentials of the node, and again with those of the administrator"
leave_two >"$log/leave.log" 2>&1 || die "$(cat "$log/leave.log")"
has_line "$log/leave.log" 'run kubectl delete node two' || die "$(cat "$log/leave.log")"
[ ! -e "$scratch/two/data/node" ] || die "files of the node are left"
[ "$(kube get node two -o 'jsonpath={.spec.unschedulable}')" = true ] || die "the node takes pods"
kube delete node two >/dev/null
line=$(inside one "$binary" token create --data-dir "$scratch/one/data" 2>/dev/null)
read -r -a words <<<"$line"
: >"$log/two-join.log"
join "${words[@]:2}"
wait_until "the second node" has_line "$log/two-join.log" 'node two is Ready'
kube scale deployment web --replicas 6 >/dev/null
wait_until "the deployment" kube rollout status deployment/web --timeout=1s
sed 's#https://127.0.0.1:6443#https://10.78.0.10:6443#' "$scratch/one/data/admin.kubeconfig" >"$scratch/two/admin.kubeconfig"
leave_two --kubeconfig "$scratch/two/admin.kubeconfig" >"$log/leave.log" 2>&1 || die "$(cat "$log/leave.log")"
for part in 'node two takes no new pods' 'the node is stopped' 'node two is deleted' 'files of the node are removed'; do
  has_line "$log/leave.log" "$part" || die "pintle leave printed no '$part': $(cat "$log/leave.log")"
done
[ ! -e "$scratch/two/data/node" ] || die "files of the node are left"
not kube get node two >/dev/null 2>&1 || die "the node is still listed"
[ "$(containers two tasks ls -q | wc -l)" = 0 ] || die "pods are left on the second machine"
wait_until "the deployment on the first machine" kube rollout status deployment/web --timeout=1s
say "two machines were a cluster, and are none again"
