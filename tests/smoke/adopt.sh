#!/usr/bin/env bash
# Starts Pintle on the etcd of an upstream API server that holds an object of every kind, and objects of versions that
# older releases stored. Both servers must show the same of every list and every object.
#
#   tests/smoke/adopt.sh [KUBECTL]
#
#   PINTLE           the binary to test (built when not given)
#   PEER_ETCD        the etcd (etcd in PATH), with etcdctl in PATH
#   PEER_APISERVER   the upstream API server (kube-apiserver in PATH)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"
# shellcheck source=tests/smoke/upstream.sh
. "$here/upstream.sh"

choose_kubectls "ADOPTING AN ETCD" "$@"
kubectl=${kubectls[0]}
find_upstream || exit 0
for tool in etcdctl python3; do
  command -v "$tool" >/dev/null && continue
  say "LEFT OUT: adopting an etcd, which takes $tool"
  exit 0
done
find_binary

say "an etcd of $("$peer_apiserver" --version), with $(basename "$kubectl")"
start_upstream
printf '%s\n' 'apiVersion: v1' 'kind: Config' 'current-context: up' \
  "clusters: [{name: up, cluster: {server: '$upstream', insecure-skip-tls-verify: true}}]" \
  'contexts: [{name: up, context: {cluster: up, user: up}}]' \
  "users: [{name: up, user: {token: '$upstream_token'}}]" >"$scratch/kubeconfig-up"
kubeconfig=$scratch/kubeconfig-up
tries=0
until k get --raw /readyz >/dev/null 2>&1; do
  [ $((tries += 1)) -lt 300 ] || die "upstream was not ready within 60 s"
  sleep 0.2
done

step "an object of every kind, written by upstream"
written=0
for sample in "$repository"/tests/samples/*.yaml; do
  if said=$(k create --validate=false -f "$sample" 2>&1); then
    written=$((written + 1))
  else
    say "    not written: $(basename "$sample"): $(head -n 1 <<<"$said")"
  fi
done
[ "$written" -ge 50 ] || die "upstream took $written samples only"
# an object of the definition among them, as soon as that is served
widget='{"apiVersion":"sample.example.com/v1","kind":"Widget","metadata":{"name":"sample"},"spec":{"size":3}}'
tries=0
until k create --validate=false -f - <<<"$widget" >/dev/null 2>&1; do
  [ $((tries += 1)) -lt 100 ] || die "upstream does not serve the definition that is a sample"
  sleep 0.2
done

step "objects of retired versions, in protobuf where they have that form"
mkdir "$scratch/retired"
awk -v folder="$scratch/retired" 'BEGIN { n = 1 } /^---$/ { n++; next } { print > sprintf("%s/%03d.yaml", folder, n) }' \
  "$here/retired.yaml"
for document in "$scratch"/retired/*.yaml; do
  key=$(sed -n 's/^# \(\/registry\/.*\)/\1/p' "$document")
  form=protobuf
  # upstream stores these two kinds as text
  case $key in */customresourcedefinitions/* | */apiservices/*) form=json ;; esac
  "$binary" convert -f "$document" -o "$form" --out "$scratch/value"
  etcdctl --endpoints "$upstream_store" put "$key" <"$scratch/value" >/dev/null
done

step "a dry run lists what will differ, and writes nothing"
revision() { etcdctl --endpoints "$upstream_store" get /registry/none -w json | sed 's/.*"revision":\([0-9]*\).*/\1/'; }
# dry_run STATUS PATTERN...: the exit status, and lines of the output.
dry_run() {
  local expected=$1 status=0 pattern
  shift
  "$binary" adopt --dry-run --etcd-servers "$upstream_store" "${encryption[@]}" >"$scratch/dry-run" 2>&1 || status=$?
  [ "$status" = "$expected" ] || die "the status of the dry run is $status: $(cat "$scratch/dry-run")"
  for pattern in "$@"; do
    grep -qE -- "$pattern" "$scratch/dry-run" || die "the dry run has no line '$pattern': $(cat "$scratch/dry-run")"
  done
}
encryption=()
# upstream writes all the time: it has to wait meanwhile
kill -STOP "${upstream_pids[1]}"
before=$(revision)
dry_run 0 '^  cronjobs.batch: .*1 of batch/v1beta1' '^  configmaps: [0-9]* of v1' 'masterleases' \
  'addresses of API servers' '--service-cluster-ip-range CIDR' 'Nothing was written'
sed 's/^/    /' < <(grep -A 200 'Worth knowing' "$scratch/dry-run" | grep -v '^ *$' | head -n 40)
[ "$(revision)" = "$before" ] || die "the dry run has written to the etcd"
[ "$(grep -c 'A server does not start' "$scratch/dry-run")" = 0 ] || die "$(cat "$scratch/dry-run")"
printf 'k8s:enc:aescbc:v1:k1:0123456789abcdef' | etcdctl --endpoints "$upstream_store" put /registry/secrets/default/sealed >/dev/null
dry_run 3 'A server does not start' 'the provider aescbc with the key "k1"' '/registry/secrets/default/sealed'
etcdctl --endpoints "$upstream_store" del /registry/secrets/default/sealed >/dev/null
kill -CONT "${upstream_pids[1]}"

step "Pintle on the same etcd"
kubeconfig=$scratch/kubeconfig
start_server --ephemeral --etcd-servers "$upstream_store"
extract_credentials
python3 "$here/adopt.py" "$upstream" "$upstream_token" "$server" "$scratch" ||
  die "what the two servers show is not the same"
stop_server
stop_upstream
say "all is well"
