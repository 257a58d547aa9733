#!/usr/bin/env bash
# Saves a cluster while it is written to, restores it, moves it to a real etcd and back, and looks at its objects with
# kubectl after each.
#
#   tests/smoke/snapshot.sh [KUBECTL]
#
#   PINTLE      the binary to test (built when not given)
#   PEER_ETCD   the etcd (etcd in PATH); without one the part about it is left out
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"

choose_kubectls "SNAPSHOTS" "$@"
kubectl=${kubectls[0]}
find_binary

# pintle ARGUMENTS...: the program, with a home of its own.
pintle() { HOME=$scratch/home "$binary" "$@"; }

# succeeds PATTERN ARGUMENTS...: pintle succeeds and says something that matches.
succeeds() {
  local pattern=$1 output
  shift
  output=$(pintle "$@" 2>&1) || die "pintle $*: $output"
  grep -qE -- "$pattern" <<<"$output" || die "pintle $*: expected $pattern, got $output"
  steps=$((steps + 1))
}

# fails PATTERN ARGUMENTS...: pintle fails and says why.
fails() {
  local pattern=$1 output
  shift
  ! output=$(pintle "$@" 2>&1) || die "pintle $* did not fail: $output"
  grep -qE -- "$pattern" <<<"$output" || die "pintle $*: expected $pattern, got $output"
  steps=$((steps + 1))
}

# The objects that must be the same everywhere, without their resource versions.
contents() {
  { k get namespaces,clusterroles -o json && k -n kept get configmaps,secrets,services -o json; } |
    sed '/"resourceVersion":/d'
}

say "snapshots with $(basename "$kubectl")"
data=$scratch/data
step "a cluster is saved while it is written to"
start_server --data-dir "$data"
expect 'created' create namespace kept
expect 'created' -n kept create secret generic s --from-literal=a=b
expect 'created' -n kept create service clusterip web --tcp=80:80
for n in $(seq 40); do expect 'created' -n kept create configmap "c$n" --from-literal=n="$n"; done
(until [ -e "$scratch/written" ]; do k -n kept annotate --overwrite configmap c40 at="$(date +%s%N)" >/dev/null; done) &
writer=$!
fails 'name a kubeconfig' snapshot save "$scratch/while-written" --data-dir "$data"
cp "$kubeconfig" "$data/admin.kubeconfig"
succeeds 'Saved [0-9]+ objects of revision [0-9]+' snapshot save "$scratch/while-written" --data-dir "$data"
touch "$scratch/written" && wait "$writer"
succeeds 'Saved' snapshot save "$scratch/a.snapshot" --kubeconfig "$kubeconfig"
[ "$(stat -c %a "$scratch/a.snapshot")" = 600 ] || die "others may read the snapshot"
succeeds "objects of revision" snapshot status "$scratch/a.snapshot"
succeeds '"objects":[0-9]+' snapshot status "$scratch/a.snapshot" -o json
contents >"$scratch/before"
version=$(k -n kept get configmap c40 -o 'jsonpath={.metadata.resourceVersion}')

step "only who may read everything gets it"
expect 'created' create serviceaccount -n kept nobody
token=$(k -n kept create token nobody)
refuse 'Forbidden' --token "$token" get --raw /store/snapshot --client-certificate='' --client-key=''

step "what was written after the snapshot is gone after a restore, and versions do not go back"
expect 'deleted' -n kept delete configmap c1
expect 'created' -n kept create configmap late
fails 'in use by another' snapshot restore "$scratch/a.snapshot" --data-dir "$data"
stop_server
fails 'exists: move it away first' snapshot restore "$scratch/a.snapshot" --data-dir "$data"
mv "$data/store" "$scratch/old-store"
head -c 5000 "$scratch/a.snapshot" >"$scratch/cut"
fails 'incomplete or damaged: it is cut off' snapshot restore "$scratch/cut" --data-dir "$data"
succeeds 'Restored [0-9]+ objects' snapshot restore "$scratch/a.snapshot" --data-dir "$data"
start_server --data-dir "$data"
contents >"$scratch/after"
diff "$scratch/before" "$scratch/after" >&2 || die "the restored objects differ"
expect "^$version\$" -n kept get configmap c40 -o 'jsonpath={.metadata.resourceVersion}'
refuse 'NotFound' -n kept get configmap late
expect 'annotated' -n kept annotate configmap c40 restored=yes
later=$(k -n kept get configmap c40 -o 'jsonpath={.metadata.resourceVersion}')
[ "$later" -gt 1000000000 ] || die "the version after the restore is $later"
refuse 'Expired|too old' get --raw "/api/v1/namespaces/kept/configmaps?limit=5&resourceVersion=$version&resourceVersionMatch=Exact"
contents >"$scratch/before"
stop_server

step "a stopped cluster is saved"
succeeds 'Saved' snapshot save "$scratch/b.snapshot" --data-dir "$data"

etcd=$(command -v "${PEER_ETCD:-etcd}" || true)
if [ -z "$etcd" ]; then
  say "LEFT OUT: moving objects to an etcd and back, which takes etcd (PEER_ETCD names it)"
  say "ok: $steps steps"
  exit 0
fi
port=${SMOKE_ETCD_PORT:-17479}
store=http://127.0.0.1:$port
"$etcd" --data-dir "$scratch/etcd" --listen-client-urls "$store" --advertise-client-urls "$store" \
  --listen-peer-urls "http://127.0.0.1:$((port + 1))" >"$scratch/etcd.log" 2>&1 &

step "the objects move to an etcd"
succeeds 'Moved [0-9]+ objects' migrate --to etcd --data-dir "$data" --etcd-servers "$store"
succeeds 'Moved [0-9]+ objects' migrate --to etcd --data-dir "$data" --etcd-servers "$store"
start_server --data-dir "$data" --etcd-servers "$store"
contents >"$scratch/after"
diff "$scratch/before" "$scratch/after" >&2 || die "the objects in the etcd differ"
ip=$(k -n kept get service web -o 'jsonpath={.spec.clusterIP}')
refuse 'already allocated' -n kept create service clusterip other --tcp=80:80 --clusterip="$ip"
expect 'annotated' -n kept annotate configmap c40 etcd=yes
succeeds 'Saved' snapshot save "$scratch/c.snapshot" --kubeconfig "$kubeconfig"
contents >"$scratch/before"
stop_server
fails 'the etcd has another' migrate --to etcd --data-dir "$data" --etcd-servers "$store"

step "and back"
fails 'exists: move it away first' migrate --to embedded --data-dir "$data" --etcd-servers "$store"
mv "$data/store" "$scratch/older-store"
succeeds 'Moved [0-9]+ objects' migrate --to embedded --data-dir "$data" --etcd-servers "$store"
start_server --data-dir "$data"
contents >"$scratch/after"
diff "$scratch/before" "$scratch/after" >&2 || die "the objects from the etcd differ"
refuse 'already allocated' -n kept create service clusterip other --tcp=80:80 --clusterip="$ip"
stop_server

step "the snapshot of a server on an etcd is restored to another prefix"
succeeds 'Restored [0-9]+ objects' snapshot restore "$scratch/c.snapshot" --etcd-servers "$store" --etcd-prefix /other
start_server --data-dir "$data" --etcd-servers "$store" --etcd-prefix /other
contents >"$scratch/after"
diff "$scratch/before" "$scratch/after" >&2 || die "the objects of the other prefix differ"
stop_server
say "ok: $steps steps"
