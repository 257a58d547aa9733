#!/usr/bin/env bash
# The pod network in namespaces: the CNI plugin called by hand, nodes on one link and behind routers, and a cluster of
# one machine with containerd.
#
#   tests/smoke/network.sh                    all of it
#   tests/smoke/network.sh plugin|nodes|cluster
#
#   PINTLE        the binary to test (built when not given)
#   PINTLE_NODE   the folder with images and containerd's configuration (../shared/tools/node), for the cluster
#
# It takes root, iproute2, Python 3, busybox and kubectl; the cluster takes containerd and cgroups v1 too. nft is used to
# look at the rules where it is there.
set -euo pipefail
# shellcheck source=tests/smoke/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=tests/smoke/machines.sh
. "$(dirname "${BASH_SOURCE[0]}")/machines.sh"
parts=${*:-plugin nodes cluster}
need_machines "POD NETWORK"
for program in python3 busybox; do
  command -v $program >/dev/null || leave_out "POD NETWORK LEFT OUT: there is no $program."
done
[ -n "${binary:-}" ] || find_binary
binary=$(realpath "$binary")

# What a machine's kernel has of pods.
footprint() {
  on "$1" bash -c '
    ip -o link | sed "s/^[0-9]*: //; s/@.*//; s/:.*//" | sort
    ip route show table main | grep -v " dev eth"; ip -6 route show table main | grep -v " dev eth"; ip neigh show nud permanent
    ! command -v nft >/dev/null || nft list tables' 2>/dev/null || true
}

# cni MACHINE PROGRAM COMMAND CONTAINER CONFIGURATION: calls a plugin; a container has the namespace of its name.
cni() {
  on "$1" env CNI_COMMAND="$3" CNI_CONTAINERID="$4" CNI_IFNAME="${interface:-eth0}" CNI_NETNS="/run/netns/$4" CNI_PATH=/run/cni/bin \
    CNI_ARGS="${arguments:-}" "/run/cni/bin/$2" <<<"$5"
}

# answer FIELD: a field of the JSON on standard input, such as ["ips"][0]["address"].
answer() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

ping() { on "$1" ip netns exec "$2" busybox ping -c 1 -W 3 "$3" >/dev/null; }

# connects MACHINE POD ADDRESS PORT: whether a TCP connection can be made; an empty pod is the machine itself.
connects() {
  local inside=()
  [ -z "$2" ] || inside=(ip netns exec "$2")
  on "$1" "${inside[@]}" python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)' "$3" "$4" 2>/dev/null
}

no() { ! "$@"; }
has_route() { on "$1" ip route | grep "^$2" >/dev/null; }

# Answers TCP connections to a port of a pod with its name.
serve() {
  local machine=$1 pod=$2 port=$3
  start_on "$machine" "serve-$pod" ip netns exec "$pod" python3 -c '
import http.server, socket, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(f"{sys.argv[1]} {self.client_address[0]}".encode())
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
Server(("::", int(sys.argv[2])), Answer).serve_forever()' "$pod" "$port"
  wait_until "the server of $pod" connects "$machine" "$pod" 127.0.0.1 "$port"
}

# Answers UDP packets to port 53 of a pod with its name; calls come from a fixed port.
echo_udp() {
  start_on "$1" "echo-$2" ip netns exec "$2" python3 -c 'import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(("0.0.0.0", 53))
while True: server.sendto(sys.argv[1].encode(), server.recvfrom(100)[1])' "$2"
  wait_until "the UDP server of $2" on "$1" ip netns exec "$2" grep -q ':0035 ' /proc/net/udp
}
call_udp() {
  on "$1" python3 -c 'import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); client.bind(("0.0.0.0", 7777)); client.settimeout(3)
client.sendto(b"hello", (sys.argv[1], int(sys.argv[2]))); print(client.recv(100).decode())' "$2" "$3"
}

# fetch MACHINE POD URL: prints the answer; an empty pod is the machine itself.
fetch() {
  local inside=()
  [ -z "$2" ] || inside=(ip netns exec "$2")
  on "$1" "${inside[@]}" python3 -c 'import sys, urllib.request
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=5).read().decode())' "$3"
}
expect_fetch() {
  local pattern=$1 got
  shift
  got=$(fetch "$@") || die "no answer: $*"
  [[ $got =~ $pattern ]] || die "$*: expected $pattern, got $got"
}

plugin() {
  say "the plugin, called by hand"
  make_machine m
  make_switch lan
  plug m lan eth0 192.168.7.1/24 fd07::1/64
  make_machine client
  plug client lan eth0 192.168.7.2/24 fd07::2/64
  on m bash -c "mkdir -p /run/cni/bin && ln -s '$binary' /run/cni/bin/pintle-cni && ln -s '$binary' /run/cni/bin/loopback
    echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"
  local before pod result first
  local config='{"cniVersion":"1.0.0","name":"pods","type":"pintle-cni","stateDir":"/run/pods","mtu":1400,"ranges":["10.7.0.0/24","fd07:1::/64"]}'
  local ports="${config%\}},\"runtimeConfig\":{\"portMappings\":[{\"hostPort\":8080,\"containerPort\":80,\"protocol\":\"tcp\"},{\"hostPort\":8081,\"containerPort\":80,\"protocol\":\"tcp\",\"hostIP\":\"192.168.7.1\"},{\"hostPort\":5353,\"containerPort\":53,\"protocol\":\"udp\"},{\"hostPort\":8082,\"containerPort\":80,\"hostIP\":\"127.0.0.1\"}]}}"
  before=$(footprint m)

  for pod in a b; do
    on m ip netns add $pod
    interface=lo cni m loopback ADD $pod '{"cniVersion":"0.3.1","name":"lo","type":"loopback"}' >/dev/null
  done
  result=$(arguments='IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=web' cni m pintle-cni ADD a "$ports")
  first=$(answer '["ips"][0]["address"]' <<<"$result")
  [ "$first" = 10.7.0.1/32 ] || die "the first address is $first"
  # a second ADD of the same container, as after a crash, has the same addresses
  [ "$(cni m pintle-cni ADD a "$ports")" = "$result" ] || die "a repeated ADD has another result"
  cni m pintle-cni ADD b "$config" >/dev/null
  for target in 10.7.0.2 fd07:1::2; do ping m a $target || die "a does not reach b at $target"; done
  for target in 10.7.0.1 fd07:1::1; do
    on m busybox ping -c 1 -W 3 $target >/dev/null || die "the machine does not reach $target"
  done
  for target in 192.168.7.1 fd07::1; do ping m a $target || die "a does not reach its machine at $target"; done
  [ "$(on m ip netns exec a cat /sys/class/net/eth0/mtu)" = 1400 ] || die "the MTU is not 1400"

  say "  CHECK"
  local checked
  checked=$(python3 -c 'import json, sys; config = json.loads(sys.argv[1]); config["prevResult"] = json.loads(sys.argv[2]); print(json.dumps(config))' "$ports" "$result")
  cni m pintle-cni CHECK a "$checked" || die "CHECK of an attached pod fails"
  on m ip netns exec a ip route del default
  ! cni m pintle-cni CHECK a "$checked" >"$scratch/check" || die "CHECK does not see a missing route"
  [ "$(answer '["code"]' <"$scratch/check")" = 101 ] || die "CHECK: $(cat "$scratch/check")"
  cni m pintle-cni ADD a "$ports" >/dev/null

  say "  chained plugins"
  local previous='{"cniVersion":"1.0.0","interfaces":[{"name":"dummy0"}],"ips":[],"dns":{"nameservers":["10.0.0.10"]}}'
  local chained
  chained=$(cni m pintle-cni ADD a "${ports%\}},\"prevResult\":$previous}")
  [ "$(answer '["ips"][0]["interface"]' <<<"$chained")" = 2 ] || die "a previous result: $chained"
  [ "$(answer '["dns"]["nameservers"][0]' <<<"$chained")" = 10.0.0.10 ] || die "a previous result: $chained"
  if [ -x /usr/lib/cni/tuning ]; then
    on m ln -sf /usr/lib/cni/tuning /run/cni/bin/tuning
    cni m tuning ADD a "{\"cniVersion\":\"1.0.0\",\"name\":\"pods\",\"type\":\"tuning\",\"sysctl\":{\"net.core.somaxconn\":\"77\"},\"prevResult\":$result}" >"$scratch/tuned" ||
      die "a plugin after this one: $(cat "$scratch/tuned")"
    [ "$(answer '["ips"][1]["address"]' <"$scratch/tuned")" = fd07:1::1/128 ] || die "a plugin after this one: $(cat "$scratch/tuned")"
  fi

  say "  host ports"
  serve m a 80
  expect_fetch '^a .*192\.168\.7\.2' client '' http://192.168.7.1:8080/
  expect_fetch '^a .*fd07::2' client '' 'http://[fd07::1]:8080/'
  expect_fetch '^a ' client '' http://192.168.7.1:8081/
  ! fetch client '' 'http://[fd07::1]:8081/' 2>/dev/null || die "a port of one address answers on another"
  expect_fetch '^a .*10\.7\.0\.2' m b http://192.168.7.1:8080/
  expect_fetch '^a ' m a http://192.168.7.1:8080/   # a pod that calls itself
  expect_fetch '^a ' m a 'http://[fd07::1]:8080/'
  expect_fetch '^a ' m '' http://192.168.7.1:8080/  # from the machine itself
  expect_fetch '^a ' m '' http://127.0.0.1:8080/
  expect_fetch '^a ' m '' http://127.0.0.1:8082/
  ! fetch client '' http://192.168.7.1:8082/ 2>/dev/null || die "a port of 127.0.0.1 answers on another address"
  # UDP: a client that keeps its port follows the host port from pod to pod
  echo_udp m a && echo_udp m b
  [ "$(call_udp client 192.168.7.1 5353)" = a ] || die "the UDP host port does not answer"
  cni m pintle-cni ADD b "$ports" >/dev/null
  [ "$(call_udp client 192.168.7.1 5353)" = b ] || die "the UDP host port leads to the former pod"
  cni m pintle-cni ADD a "$ports" >/dev/null && cni m pintle-cni ADD b "$config" >/dev/null
  stop_on m echo-a && stop_on m echo-b
  # a service of the machine on 127.0.0.1 stays out of reach for pods
  start_on m local python3 -m http.server 9999 --bind 127.0.0.1 --directory /run/netns
  wait_until "the local service" connects m '' 127.0.0.1 9999
  on m ip netns exec a bash -euc 'ip address flush dev lo; ip route flush table local 127.0.0.0/8
    echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet; ip route add 127.0.0.0/8 via 169.254.1.1 dev eth0'
  ! connects m a 127.0.0.1 9999 || die "a pod reaches the machine's loopback"
  # the rule is what keeps it out
  if on m which nft >/dev/null; then
    on m nft flush chain inet pintle_pods foreign-loopback
    connects m a 127.0.0.1 9999 || die "the rule against packets to the machine's loopback is not tested"
  fi
  stop_on m local
  stop_on m serve-a

  say "  DEL"
  for pod in a b; do
    cni m pintle-cni DEL $pod "$ports"
    cni m pintle-cni DEL $pod "$ports" || die "a repeated DEL fails"
    on m ip netns del $pod
  done
  cni m pintle-cni DEL never-there "$config" || die "DEL of an unknown container fails"
  [ "$(footprint m)" = "$before" ] || { diff <(echo "$before") <(footprint m); die "DEL leaves something behind"; }

  say "  freed addresses come last, leaked ones are collected"
  on m ip netns add c
  result=$(cni m pintle-cni ADD c "$config")
  [ "$(answer '["ips"][0]["address"]' <<<"$result")" = 10.7.0.3/32 ] || die "a freed address is used at once"
  cni m pintle-cni DEL c "$config"
  local small='{"cniVersion":"0.4.0","name":"pods","type":"pintle-cni","stateDir":"/run/small","ranges":["10.8.0.0/30"]}'
  cni m pintle-cni ADD c "$small" >/dev/null
  on m ip netns add d && cni m pintle-cni ADD d "$small" >/dev/null
  on m ip netns add e
  ! cni m pintle-cni ADD e "$small" >"$scratch/full" || die "three pods fit into two addresses"
  [ "$(answer '["code"]' <"$scratch/full")" = 11 ] || die "a full range: $(cat "$scratch/full")"
  on m ip netns del d   # its container is gone without DEL
  wait_until "the link of a deleted namespace is gone" no has_route m '10\.8\.0\.2 '
  wait_until "a leaked address is used again" cni m pintle-cni ADD e "$small"
  for pod in c d e; do cni m pintle-cni DEL $pod "$small"; done

  say "  killed at any moment"
  local seed=${SEED:-$RANDOM} round
  say "    seed $seed"
  RANDOM=$seed
  for round in $(seq 1 25); do
    # the time is not exact, but random; what counts is that it is somewhere inside of the call
    on m env CNI_COMMAND=ADD CNI_CONTAINERID=c CNI_IFNAME=eth0 CNI_NETNS=/run/netns/c \
      timeout -s KILL "0.0$(printf '%02d' $((RANDOM % 30 + 2)))" /run/cni/bin/pintle-cni <<<"$ports" >/dev/null 2>&1 || true
    if [ $((round % 2)) = 0 ]; then
      result=$(cni m pintle-cni ADD c "$ports") || die "round $round: ADD after a killed one: $result"
      ping_self=$(answer '["ips"][0]["gateway"]' <<<"$result")
      [ "$ping_self" = 169.254.1.1 ] || die "round $round: $result"
      on m busybox ping -c 1 -W 3 "$(answer '["ips"][0]["address"].split("/")[0]' <<<"$result")" >/dev/null || die "round $round: the pod is not attached"
      on m env CNI_COMMAND=DEL CNI_CONTAINERID=c CNI_IFNAME=eth0 CNI_NETNS=/run/netns/c \
        timeout -s KILL "0.0$(printf '%02d' $((RANDOM % 20 + 2)))" /run/cni/bin/pintle-cni <<<"$ports" >/dev/null 2>&1 || true
    fi
    cni m pintle-cni DEL c "$ports" || die "round $round: DEL after a killed call"
    [ "$(footprint m)" = "$before" ] || { diff <(echo "$before") <(footprint m); die "round $round leaves something behind"; }
  done
  [ "$(on m cat /run/pods/attachments.json | answer '["attachments"]')" = '[]' ] || die "addresses are still recorded"
}

# Runs the pod network of a node, and attaches a pod of the machine's name with the configuration that it writes.
run_node() {
  local name=$1
  on "$name" bash -c "ln -sfn '$binary' /run/pintle"
  start_on "$name" network "$binary" network -v --kubeconfig "$scratch/nodes.kubeconfig" --node-name "$name" \
    --cni-conf-dir /run/cni/net.d --cni-bin-dir /run/cni/bin --state-dir /run/pods
}
attach_pod() {
  local name=$1 pod=$2
  wait_until "the CNI configuration of $name" on "$name" test -f /run/cni/net.d/10-pintle.conflist
  on "$name" ip netns add "$pod"
  interface=lo cni "$name" loopback ADD "$pod" '{"cniVersion":"0.3.1","name":"lo","type":"loopback"}' >/dev/null
  on "$name" python3 -c 'import json; list = json.load(open("/run/cni/net.d/10-pintle.conflist")); print(json.dumps({**list["plugins"][0], "cniVersion": list["cniVersion"], "name": list["name"]}))' >"$scratch/$name.config"
  cni "$name" pintle-cni ADD "$pod" "$(cat "$scratch/$name.config")" >"$scratch/$pod.result"
}
address_of() { answer "[\"ips\"][$2][\"address\"].split(\"/\")[0]" <"$scratch/$1.result"; }

# Objects of nodes: name, pod ranges, addresses.
make_node() {
  local name=$1 ranges=$2
  shift 2
  python3 - "$name" "$ranges" "$@" <<'END' | on server kubectl --kubeconfig "$scratch/nodes.kubeconfig" create -f - >/dev/null
import json, sys
name, ranges = sys.argv[1], sys.argv[2].split(",")
print(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": ranges[0], "podCIDRs": ranges}}))
END
  python3 -c 'import json, sys; print(json.dumps({"status": {"addresses": [{"type": "InternalIP", "address": it} for it in sys.argv[1:]]}}))' "$@" >"$scratch/status.json"
  on server kubectl --kubeconfig "$scratch/nodes.kubeconfig" patch node "$name" --subresource=status --type=merge --patch-file "$scratch/status.json" >/dev/null
}

nodes() {
  command -v kubectl >/dev/null || leave_out "NODES OF THE POD NETWORK LEFT OUT: there is no kubectl."
  say "nodes on one link and behind a router"
  local name from to
  make_switch one
  make_switch two
  # server, n1 and n2 are on one link; n3 is behind a router
  make_machine server && plug server one eth0 192.168.1.10/24 fd01::10/64
  make_machine n1 && plug n1 one eth0 192.168.1.1/24 fd01::1/64
  make_machine n2 && plug n2 one eth0 192.168.1.2/24 fd01::2/64
  make_machine n3 && plug n3 two eth0 192.168.2.3/24 fd02::3/64
  make_machine router && plug router one eth0 192.168.1.254/24 fd01::fe/64 && plug router two eth1 192.168.2.254/24 fd02::fe/64
  on router bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
  for name in server n1 n2; do
    on $name ip route add default via 192.168.1.254
    on $name ip -6 route add default via fd01::fe
  done
  on n3 ip route add default via 192.168.2.254
  on n3 ip -6 route add default via fd02::fe
  # the strictest setting of distributions
  for name in n1 n2 n3; do on $name bash -c 'for it in all default eth0; do echo 1 >/proc/sys/net/ipv4/conf/$it/rp_filter; done'; done

  # Docker and some firewalls do this
  if on n2 which iptables ip6tables >/dev/null; then on n2 bash -c 'iptables -P FORWARD DROP && ip6tables -P FORWARD DROP'; fi
  start_on server apiserver "$binary" up --components apiserver --ephemeral --bind-address 0.0.0.0 --advertise-address 192.168.1.10 \
    --tls-san 192.168.1.10 --secure-port 6443 --write-kubeconfig "$scratch/admin.kubeconfig"
  wait_until "the API server" grep -q ' is ready on ' "$scratch/logs/server.apiserver"
  sed 's#https://[^ ]*#https://192.168.1.10:6443#' "$scratch/admin.kubeconfig" >"$scratch/nodes.kubeconfig"
  make_node n1 10.60.1.0/24,fd60:0:0:1::/64 192.168.1.1 fd01::1
  make_node n2 10.60.2.0/24,fd60:0:0:2::/64 192.168.1.2 fd01::2
  for name in n1 n2; do run_node $name && attach_pod $name pod-$name; done
  for name in n1 n2; do
    wait_until "the pod network of $name" grep -q 'the pod network is complete' "$scratch/logs/$name.network"
  done
  reach() {
    local which target
    for which in 0 1; do
      target=$(address_of "pod-$2" $which)
      wait_until "$1 reaches the pod of $2 at $target" ping "$1" "pod-$1" "$target"
      wait_until "machine $1 reaches the pod of $2 at $target" on "$1" busybox ping -c 1 -W 3 "$target"
    done
  }
  say "  two nodes on one link: host routes"
  reach n1 n2 && reach n2 n1
  wait_until "a route" has_route n1 '10\.60\.2\.0/24 via 192\.168\.1\.2 dev eth0 proto 112'
  ! on n1 ip link show pintle-vxlan >/dev/null 2>&1 || die "two nodes of one link have a VXLAN"
  # pods of another node see the address of the pod, others that of the node
  serve n2 pod-n2 80
  expect_fetch "^pod-n2 .*$(address_of pod-n1 0)" n1 pod-n1 "http://$(address_of pod-n2 0)/"
  start_on server serve-host python3 -m http.server 8000 --bind 192.168.1.10 --directory /run/netns
  wait_until "a server outside" connects server '' 192.168.1.10 8000
  fetch n1 pod-n1 http://192.168.1.10:8000/ >/dev/null || die "a pod does not reach machines outside of the cluster"
  grep -q '^192.168.1.1 ' "$scratch/logs/server.serve-host" || die "a pod's packets leave the cluster without masquerade"

  say "  a third node behind a router: VXLAN"
  make_node n3 10.60.3.0/24,fd60:0:0:3::/64 192.168.2.3 fd02::3
  run_node n3 && attach_pod n3 pod-n3
  for from in n1 n2 n3; do
    for to in n1 n2 n3; do [ $from = $to ] || reach $from $to; done
  done
  has_route n1 '10\.60\.3\.0/24 via 10\.60\.3\.0 dev pintle-vxlan proto 112 src 10\.60\.1\.0 onlink' || die "n1 has no route through the VXLAN: $(on n1 ip route)"
  on n3 ip netns exec pod-n3 cat /sys/class/net/eth0/mtu | grep '^1450$' >/dev/null || die "the MTU of a pod with a VXLAN is not 1450"
  # large packets: the machine tells pods on other links the smaller MTU
  on n1 ip netns exec pod-n1 python3 -c 'import socket, sys
connection = socket.create_connection((sys.argv[1], 80), 5)
connection.sendall(b"GET / HTTP/1.0\r\nX: " + b"x" * 30000 + b"\r\n\r\n"); print(connection.recv(100))' "$(address_of pod-n2 0)" >/dev/null

  say "  changes"
  # what another program made stays, what this one made and no node needs goes
  on n1 ip route add 10.99.0.0/24 via 192.168.1.2
  on n1 ip route add 10.98.0.0/24 via 192.168.1.2 proto 112
  on server kubectl --kubeconfig "$scratch/nodes.kubeconfig" delete node n3 >/dev/null
  wait_until "the VXLAN of n1 goes" no on n1 ip link show pintle-vxlan
  wait_until "stale routes go" no has_route n1 '10\.98\.'
  has_route n1 '10\.99\.' || die "a route of another program was removed"
  reach n1 n2
  # routes that are lost come back
  on n1 ip route flush proto 112
  wait_until "a lost route comes back" has_route n1 '10\.60\.2\.0/24 via 192\.168\.1\.2 dev eth0 proto 112'
  # another network takes over
  on n1 bash -c 'echo "{}" >/run/cni/net.d/05-other.conf'
  make_node n4 10.60.4.0/24 192.168.1.4
  wait_until "the configuration of another network is used" grep -q 'another network' "$scratch/logs/n1.network"
  ! on n1 test -e /run/cni/net.d/10-pintle.conflist || die "two CNI configurations"

  for name in n1 n2 n3; do
    cni $name pintle-cni DEL pod-$name "$(cat "$scratch/$name.config")"
    stop_on $name network
  done
}

for part in $parts; do
  case $part in
    plugin) plugin ;;
    nodes) nodes ;;
    cluster) "$(dirname "${BASH_SOURCE[0]}")/network_cluster.sh" ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
  esac
done
say "the pod network works: $parts"
