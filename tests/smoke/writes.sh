#!/usr/bin/env bash
# Every way in which kubectl writes: apply on either side, edit, patch, replace, label, annotate, set, scale,
# rollout, diff and delete. Every step says what it expects and fails when it sees something else.
#
#   tests/smoke/writes.sh              the kubectl of the PATH, and the oldest and newest beside it
#   tests/smoke/writes.sh KUBECTL...   these
#
#   PINTLE             the binary to test (built when not given)
#   SMOKE_KUBECONFIG   a server that runs already, instead
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"

choose_kubectls "WRITES" "$@"

namespace=
round=0
deployment() {
  cat <<EOF
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: ${1:-2}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: ${2:-registry.example/web:1}
        env: [{name: MODE, value: plain}]
EOF
}

config() {
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {set: %s}}\ndata: {a: "%s"}\n' "$1" "$2" "$3"
}

# A stand-in for an editor that changes one word.
editor() {
  printf '#!/bin/sh\nsed "%s" "$1" >"$1.new" && mv "$1.new" "$1"\n' "$1" >"$scratch/editor"
  chmod +x "$scratch/editor"
}

value() { k -n "$namespace" get "$1" -o "jsonpath=$2"; }

check() {
  local found
  found=$(value "$1" "$2")
  [ "$found" = "$3" ] || complain "get $1 -o jsonpath=$2" "$3" 0 "$found"
  steps=$((steps + 1))
}

client_side_apply() {
  step "apply on the client's side"
  deployment 2 >"$scratch/web.yaml"
  expect 'deployment.apps/web created' -n "$namespace" apply -f "$scratch/web.yaml"
  expect 'deployment.apps/web unchanged' -n "$namespace" apply -f "$scratch/web.yaml"
  deployment 3 registry.example/web:2 >"$scratch/web.yaml"
  expect 'deployment.apps/web configured' -n "$namespace" apply -f "$scratch/web.yaml"
  check deployment/web '{.spec.replicas} {.spec.template.spec.containers[0].image}' '3 registry.example/web:2'
  step "apply takes away what it set before, and nothing else"
  expect 'annotated?' -n "$namespace" annotate deployment/web by=hand
  sed -i '/env:/d' "$scratch/web.yaml"
  expect 'configured' -n "$namespace" apply -f "$scratch/web.yaml"
  check deployment/web '{.spec.template.spec.containers[0].env}{.metadata.annotations.by}' 'hand'
  expect 'registry.example/web:2' -n "$namespace" apply view-last-applied deployment/web
  deployment 3 registry.example/web:2 >"$scratch/web.yaml"
  expect 'deployment.apps/web configured' -n "$namespace" apply set-last-applied -f "$scratch/web.yaml"
  expect 'MODE' -n "$namespace" apply view-last-applied deployment/web
  editor 's/value: plain/value: fancy/'
  EDITOR=$scratch/editor expect 'deployment.apps/web edited' -n "$namespace" apply edit-last-applied deployment/web
  expect 'fancy' -n "$namespace" apply view-last-applied deployment/web
  step "apply --prune"
  config one p 1 >"$scratch/one.yaml"
  config two p 1 >"$scratch/two.yaml"
  mkdir -p "$scratch/both" && cp "$scratch/one.yaml" "$scratch/two.yaml" "$scratch/both"
  expect 'configmap/two created' -n "$namespace" apply -f "$scratch/both"
  expect 'configmap/two pruned' -n "$namespace" apply -f "$scratch/one.yaml" --prune -l set=p \
    --prune-allowlist core/v1/ConfigMap
  refuse 'NotFound' -n "$namespace" get configmap two
}

server_side_apply() {
  step "apply on the server's side"
  config shared s 1 >"$scratch/shared.yaml"
  expect 'configmap/shared serverside-applied' -n "$namespace" apply --server-side -f "$scratch/shared.yaml"
  expect 'configmap/shared serverside-applied' -n "$namespace" apply --server-side -f "$scratch/shared.yaml"
  config shared s 2 >"$scratch/shared.yaml"
  refuse 'Apply failed with 1 conflict: conflict with "kubectl": \.data\.a' \
    -n "$namespace" apply --server-side --field-manager other -f "$scratch/shared.yaml"
  expect 'serverside-applied' \
    -n "$namespace" apply --server-side --field-manager other --force-conflicts -f "$scratch/shared.yaml"
  check configmap/shared '{.data.a}' '2'
  check configmap/shared '{.metadata.managedFields[*].manager}' 'kubectl other'
  step "from the client's side to the server's"
  config moved m 1 >"$scratch/moved.yaml"
  expect 'configmap/moved created' -n "$namespace" apply -f "$scratch/moved.yaml"
  config moved m 2 >"$scratch/moved.yaml"
  expect 'serverside-applied' -n "$namespace" apply --server-side -f "$scratch/moved.yaml"
  check configmap/moved '{.data.a}' '2'
  expect 'configmap/moved serverside-applied \(server dry run\)' \
    -n "$namespace" apply --server-side --dry-run=server -f "$scratch/moved.yaml"
}

single_writes() {
  step "patch, in each of its ways"
  expect 'deployment.apps/web patched' -n "$namespace" patch deployment web -p '{"spec":{"replicas":4}}'
  expect 'patched' -n "$namespace" patch deployment web --type merge -p '{"spec":{"paused":true}}'
  expect 'patched \(no change\)' -n "$namespace" patch deployment web --type merge -p '{"spec":{"paused":true}}'
  expect 'patched' -n "$namespace" patch deployment web --type json -p '[{"op":"remove","path":"/spec/paused"}]'
  expect 'patched' -n "$namespace" patch deployment web \
    -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"registry.example/side:1"}]}}}}'
  check deployment/web '{.spec.replicas} {.spec.paused}' '4 '
  check deployment/web '{.spec.template.spec.containers[*].name}' 'side main'
  expect 'patched' -n "$namespace" patch deployment web --subresource status --type merge \
    -p '{"status":{"replicas":4,"updatedReplicas":4,"readyReplicas":4,"availableReplicas":4}}'
  check deployment/web '{.status.readyReplicas}' '4'
  refuse 'Invalid value: -1' -n "$namespace" patch deployment web -p '{"spec":{"replicas":-1}}'
  step "label and annotate"
  expect 'labeled' -n "$namespace" label deployment web tier=front
  refuse "already has a value" -n "$namespace" label deployment web tier=back
  expect 'labeled' -n "$namespace" label deployment web tier=back --overwrite
  expect 'unlabeled' -n "$namespace" label deployment web tier-
  expect 'annotated?' -n "$namespace" annotate deployment web note=x
  expect 'annotated?' -n "$namespace" annotate deployment web note-
  step "edit"
  editor 's/replicas: 4/replicas: 5/'
  EDITOR=$scratch/editor expect 'deployment.apps/web edited' -n "$namespace" edit deployment web
  check deployment/web '{.spec.replicas}' '5'
  step "replace"
  config plain r 1 >"$scratch/plain.yaml"
  expect 'configmap/plain created' -n "$namespace" create -f "$scratch/plain.yaml"
  local uid
  uid=$(value configmap/plain '{.metadata.uid}')
  config plain r 2 >"$scratch/plain.yaml"
  expect 'configmap/plain replaced' -n "$namespace" replace -f "$scratch/plain.yaml"
  check configmap/plain '{.data.a} {.metadata.uid}' "2 $uid"
  expect 'configmap/plain replaced' -n "$namespace" replace --force -f "$scratch/plain.yaml"
  [ "$(value configmap/plain '{.metadata.uid}')" != "$uid" ] || die "replace --force kept the object"
  refuse 'NotFound' -n "$namespace" replace -f <(config missing r 1)
}

workloads() {
  step "set image, scale, rollout"
  expect 'image updated' -n "$namespace" set image deployment/web main=registry.example/web:3
  check deployment/web '{.spec.template.spec.containers[?(@.name=="main")].image}' 'registry.example/web:3'
  expect 'env updated' -n "$namespace" set env deployment/web MODE=other
  expect 'resource requirements updated' -n "$namespace" set resources deployment web -c main --limits=cpu=1
  expect 'scaled' -n "$namespace" scale deployment web --replicas=6
  refuse 'expected replicas to be 1, was 6|Expected replicas to be 1, was 6' \
    -n "$namespace" scale deployment web --replicas=7 --current-replicas=1
  check deployment/web '{.spec.replicas}' '6'
  expect 'Scale' -n "$namespace" get deployment web --subresource scale -o 'jsonpath={.kind}'
  expect 'paused' -n "$namespace" rollout pause deployment web
  expect 'resumed' -n "$namespace" rollout resume deployment web
  expect 'restarted' -n "$namespace" rollout restart deployment web
  check deployment/web '{.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}' \
    "$(value deployment/web '{.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}')"
  expect 'autoscaled' -n "$namespace" autoscale deployment web --min=1 --max=3 --cpu-percent=50
  check horizontalpodautoscaler/web '{.spec.maxReplicas}' '3'
  expect 'service/web exposed' -n "$namespace" expose deployment web --port=80
  step "diff"
  deployment 9 registry.example/web:9 >"$scratch/web.yaml"
  local status=0
  output=$(k -n "$namespace" diff -f "$scratch/web.yaml" 2>&1) || status=$?
  [ "$status" -eq 1 ] && grep -q '+ *replicas: 9' <<<"$output" || complain diff 'a difference' "$status" "$output"
  check deployment/web '{.spec.replicas}' '6'
}

deletion() {
  step "delete, in each of its ways"
  expect 'configmap "plain" deleted' -n "$namespace" delete configmap plain --dry-run=server
  expect 'configmap "plain" deleted' -n "$namespace" delete configmap plain
  expect 'deployment.apps "web" deleted' -n "$namespace" delete deployment web --cascade=orphan --wait=false
  check deployment/web '{.metadata.finalizers}' '["orphan"]'
  expect 'patched' -n "$namespace" patch deployment web --type json -p '[{"op":"remove","path":"/metadata/finalizers"}]'
  refuse 'NotFound' -n "$namespace" get deployment web
  deployment >"$scratch/web.yaml"
  expect 'created' -n "$namespace" create -f "$scratch/web.yaml"
  expect 'deleted' -n "$namespace" delete -f "$scratch/web.yaml" --cascade=foreground --wait=false
  check deployment/web '{.metadata.finalizers}' '["foregroundDeletion"]'
  expect 'patched' -n "$namespace" patch deployment web --type merge -p '{"metadata":{"finalizers":null}}'
  expect 'created' -n "$namespace" create -f "$scratch/web.yaml"
  expect 'deleted' -n "$namespace" delete deployment -l app=web
  expect 'deleted' -n "$namespace" delete configmaps,services,horizontalpodautoscalers --all
  refuse 'NotFound' -n "$namespace" get configmap shared
}

if [ -n "${SMOKE_KUBECONFIG:-}" ]; then
  cp "$SMOKE_KUBECONFIG" "$kubeconfig"
else
  start_server --ephemeral
fi
for kubectl in "${kubectls[@]}"; do
  say "writing with $(basename "$kubectl")"
  namespace=writes-$$-$((round += 1))
  expect 'created' create namespace "$namespace"
  client_side_apply
  server_side_apply
  single_writes
  workloads
  deletion
  k delete namespace "$namespace" --wait=false >/dev/null
done
[ -n "${SMOKE_KUBECONFIG:-}" ] || stop_server
say "all is well: $steps steps"
