#!/usr/bin/env bash
# Drives a real server with kubectl, as a user would: every kind, the everyday commands, and a restart in
# between with nothing lost. Every step says what it expects and fails when it sees something else.
#
#   tests/smoke/kubectl.sh              the kubectl of the PATH, and the oldest and newest beside it
#   tests/smoke/kubectl.sh KUBECTL...   these
#
#   PINTLE   the binary to test (built when not given)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"

choose_kubectls "SMOKE RUN" "$@"

# shellcheck source=tests/smoke/samples.sh
. "$here/samples.sh"

# kind, name, scope, columns of -o wide
objects=(
  "namespace      smoke          -        NAME STATUS AGE"
  "serviceaccount smoke-account  smoke    NAME SECRETS AGE"
  "secret         smoke-secret   smoke    NAME TYPE DATA AGE"
  "configmap      smoke-config   smoke    NAME DATA AGE"
  "node           smoke-node     -        NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME"
  "pod            smoke-pod      smoke    NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
  "event          smoke-event    smoke    LAST SEEN TYPE REASON OBJECT SUBOBJECT SOURCE MESSAGE FIRST SEEN COUNT NAME"
  "lease          smoke-lease    smoke    NAME HOLDER AGE"
  "runtimeclass   smoke-class    -        NAME HANDLER AGE"
  "certificatesigningrequest smoke-request - NAME AGE SIGNERNAME REQUESTOR REQUESTEDDURATION CONDITION"
)
kinds=namespaces,serviceaccounts,secrets,configmaps,nodes,pods,events,leases,runtimeclasses,certificatesigningrequests

# lack PATTERN: the last output has nothing like it.
lack() {
  ! grep -qE -- "$1" <<<"$output" || complain "(the last command)" "nothing like $1" 0 "$output"
}

# await PATTERN FILE: the file comes to have a matching line.
await() {
  local waited=0
  until grep -qE -- "$1" "$2"; do
    [ $((waited += 1)) -le 200 ] || complain "(a watch)" "$1 within 20 s" - "$(cat "$2")"
    sleep 0.1
  done
  steps=$((steps + 1))
}

# Calls a function for each object: with kind, name, the flags for its namespace, and its wide columns.
for_each_object() {
  local what=$1 kind name scope columns
  for object in "${objects[@]}"; do
    read -r kind name scope columns <<<"$object"
    in=()
    [ "$scope" = - ] || in=(-n "$scope")
    "$what" "$kind" "$name" "$columns"
  done
}

describe_api() {
  step "version, api-versions, api-resources, explain, raw paths"
  expect 'Server Version:.*1\.26' version
  expect '^v1$' api-versions
  expect '^node\.k8s\.io/v1$' api-versions
  expect '^pods +po +v1 +true +Pod$' api-resources
  expect '^runtimeclasses +node\.k8s\.io/v1 +false +RuntimeClass$' api-resources
  expect '^certificatesigningrequests +csr ' api-resources --api-group=certificates.k8s.io
  expect '^ok$' get --raw /readyz
  expect '"major": ?"1"' get --raw /version
  expect '"kind": ?"APIResourceList"' get --raw /api/v1
  expect 'openapi/v3/api/v1\?hash=' get --raw /openapi/v3
  explain_one() {
    expect '(KIND|FIELDS):' explain "$1"
    lack 'DESCRIPTION:[[:space:]]*<empty>$'
  }
  for_each_object explain_one
  expect 'containerPort' explain pod.spec.containers.ports
  expect 'podAffinity' explain pod.spec --recursive
}

create_all() {
  step "create with strict validation; dry run leaves nothing behind"
  expect 'smoke created \(server dry run\)' create --dry-run=server "$strict" -f "$scratch/namespace.yaml"
  refuse 'NotFound' get namespace smoke
  expect 'namespace/smoke created' create "$strict" -f "$scratch/namespace.yaml"
  expect 'configmap/smoke-config created \(server dry run\)' create --dry-run=server -f "$scratch/others.yaml"
  refuse 'NotFound' get configmap smoke-config -n smoke
  expect 'configmap/smoke-config created' create "$strict" -f "$scratch/others.yaml"
  for_each_object created
  refuse 'AlreadyExists' create -f "$scratch/namespace.yaml"
  refuse 'unknown field "?(ConfigMap\.)?datum' create "$strict" -f "$scratch/misspelt.yaml"
  refuse 'is invalid|Invalid value' create configmap Not_A_Name -n smoke
}
created() { [ "$1" = namespace ] || grep -qE "^$1(\.[a-z0-9.]+)?/$2 created$" <<<"$output" || complain "create" "$1/$2 created" 0 "$output"; }

show() {
  local kind=$1 name=$2 columns=$3
  expect "^${columns%% *} " get "$kind" "$name" "${in[@]}"
  expect "^ *name: $name$" get "$kind" "$name" "${in[@]}" -o yaml
  grep -qE '^  uid: [0-9a-f-]{36}$' <<<"$output" || complain "get $kind -o yaml" "a uid" 0 "$output"
  expect "\"name\": \"$name\"" get "$kind" "$name" "${in[@]}" -o json
  expect "^${columns// / +} *$" get "$kind" "$name" "${in[@]}" -o wide
  grep -qE "(^| )$name( |$)" <<<"$output" || complain "get $kind -o wide" "a row for $name" 0 "$output"
  expect "/$name$" get "$kind" "${in[@]}" -l smoke=yes -o name
  expect "/$name$" get "$kind" "${in[@]}" -l 'smoke in (yes,maybe),!absent' --chunk-size=1 -o name
  expect "^$name$" get "$kind" "${in[@]}" --field-selector "metadata.name=$name" -o 'jsonpath={.items[0].metadata.name}'
  expect "^Name: +$name$" describe "$kind" "$name" "${in[@]}"
}

change() {
  local kind=$1 name=$2
  expect "$name (labeled|not labeled)" label "$kind" "$name" "${in[@]}" "stage=first"
  refuse "already has a value|--overwrite" label "$kind" "$name" "${in[@]}" "stage=other"
  expect "$name (labeled|not labeled)" label "$kind" "$name" "${in[@]}" "stage=second" --overwrite
  expect "$name annotate" annotate "$kind" "$name" "${in[@]}" "note=before"
  expect "$name edited" edit "$kind" "$name" "${in[@]}"
  expect "^after second$" get "$kind" "$name" "${in[@]}" \
    -o 'jsonpath={.metadata.annotations.note} {.metadata.labels.stage}'
  expect "$name annotate" annotate "$kind" "$name" "${in[@]}" "note-"
  expect '^$' get "$kind" "$name" "${in[@]}" -o 'jsonpath={.metadata.annotations.note}'
}

select_and_page() {
  step "selectors and pages"
  local number
  for number in 1 2 3 4 5 6 7; do
    expect "created" create configmap "page-$number" -n smoke --from-literal="number=$number"
  done
  expect "^page-7 " get configmaps -n smoke --chunk-size=2
  [ "$(grep -c '^page-' <<<"$output")" -eq 7 ] || complain "get --chunk-size=2" "seven of them" 0 "$output"
  expect '"remainingItemCount": ?[0-9]' get --raw '/api/v1/namespaces/smoke/configmaps?limit=2'
  expect 'smoke-pod' get pods -A --field-selector status.phase=Pending
  expect 'No resources found' get pods -A --field-selector spec.nodeName=elsewhere
  refuse 'field label not supported' get pods -n smoke --field-selector spec.image=x
  expect 'smoke-event' get events -n smoke --field-selector involvedObject.name=smoke-pod -o name
  expect 'smoke-event' get events.events.k8s.io -n smoke -o name
  expect '^page-' get configmaps -n smoke --no-headers -l '!smoke'
  expect 'deleted' delete configmaps -n smoke -l '!smoke'
  expect '^configmap/smoke-config$' get configmaps -n smoke -o name
  lack 'page-'
}

watch_and_wait() {
  step "watch and wait"
  local watch_pid
  : >"$scratch/watch"
  k get configmaps -n smoke -w --output-watch-events >"$scratch/watch" 2>&1 &
  watch_pid=$!
  await '^ADDED +smoke-config ' "$scratch/watch"
  expect created create configmap watched -n smoke --from-literal=a=b
  await '^ADDED +watched ' "$scratch/watch"
  expect labeled label configmap watched -n smoke a=b
  await '^MODIFIED +watched ' "$scratch/watch"
  expect 'condition met' wait configmap/watched -n smoke --for='jsonpath={.data.a}=b' --timeout=20s
  expect deleted delete configmap watched -n smoke --wait=false
  await '^DELETED +watched ' "$scratch/watch"
  kill "$watch_pid"
  wait "$watch_pid" 2>/dev/null || true
  expect 'patched' patch node smoke-node --subresource=status --type=merge \
    -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
  expect 'condition met' wait node/smoke-node --for=condition=Ready --timeout=20s
  expect '^smoke-node +Ready +worker ' get nodes
  k wait configmap/held -n smoke --for=delete --timeout=20s >"$scratch/wait" 2>&1 || complain "wait --for=delete" "at once for what is not there" "$?" "$(cat "$scratch/wait")"
}

# Everything there is, in a form that must be the same after a restart; not the lease by which a server says that it is
# there.
everything() { k get "$kinds" -A -o json -l '!k8s.io/component'; }

restart() {
  step "restart: nothing is lost, versions go on"
  local version
  everything >"$scratch/before"
  [ "$(grep -c '"uid":' "$scratch/before")" -ge 10 ] || die "there is too little to lose"
  expect '[0-9]' get --raw '/api/v1/configmaps?limit=1'
  version=$(sed 's/.*"resourceVersion": *"\([0-9]*\)".*/\1/' <<<"${output:0:200}")
  stop_server || die "the server did not stop cleanly"
  start_server --data-dir "$data"
  everything >"$scratch/after"
  cmp -s "$scratch/before" "$scratch/after" ||
    complain "get after a restart" "what was there before" 0 "$(diff "$scratch/before" "$scratch/after")"
  expect created create configmap later -n smoke
  expect '^[0-9]+$' get configmap later -n smoke -o 'jsonpath={.metadata.resourceVersion}'
  [ "$output" -gt "${version:-0}" ] || complain "create after a restart" "a version above $version" 0 "$output"
  expect deleted delete configmap later -n smoke
}

remove() {
  local kind=$1 name=$2
  # nothing empties a namespace as long as there is no controller for it
  [ "$kind" != namespace ] || return 0
  expect "$name.*deleted \(server dry run\)" delete "$kind" "$name" "${in[@]}" --dry-run=server
  expect "/$name$" get "$kind" "$name" "${in[@]}" -o name
  expect "$name.*deleted" delete "$kind" "$name" "${in[@]}" --timeout=20s
  refuse "NotFound" get "$kind" "$name" "${in[@]}"
}

remove_namespace() {
  expect 'smoke.*deleted' delete namespace smoke --wait=false
  # gone or going, according to whether a controller runs
  output=$(k get namespace smoke -o 'jsonpath={.status.phase}' 2>&1) || true
  grep -qE 'Terminating|NotFound' <<<"$output" || complain "get namespace" "Terminating or NotFound" 0 "$output"
}

prepare() {
  mkdir -p "$scratch/home"
  rm -rf "$data"
  sed '/^---$/,$d' "$here/objects.yaml" >"$scratch/namespace.yaml"
  sed '1,/^---$/d' "$here/objects.yaml" >"$scratch/others.yaml"
  printf '%s\n' 'apiVersion: v1' 'kind: ConfigMap' 'metadata: {name: misspelt, namespace: smoke}' \
    'datum: {a: b}' >"$scratch/misspelt.yaml"
  printf '%s\n' '#!/bin/sh' 'sed "s/note: before/note: after/" "$1" >"$1.new" && mv "$1.new" "$1"' >"$scratch/editor"
  chmod +x "$scratch/editor"
  export KUBE_EDITOR=$scratch/editor
}

smoke() {
  kubectl=$1
  data=$scratch/data
  local told minor
  prepare
  told=$(k version --client -o json 2>&1) || die "$kubectl does not run: $told"
  minor=$(sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p' <<<"$told" | head -n 1)
  say "kubectl 1.${minor:-?} ($kubectl)"
  if [ "${minor:-0}" -lt 25 ]; then
    say "  LEFT OUT: kubectl before 1.25 has neither --validate=strict nor patch --subresource"
    return 0
  fi
  strict=--validate=strict
  start_server --data-dir "$data"
  describe_api
  list_resources
  # once is enough: what is explained is the server's, and this takes a while
  if [ "$explained" = no ]; then explain_resources; fi
  explained=yes
  create_all
  step "get in every form, selectors, describe"
  for_each_object show
  step "label, annotate, edit"
  for_each_object change
  select_and_page
  watch_and_wait
  restart
  step "delete"
  for_each_object remove
  remove_namespace
  create_samples
  stop_server || die "the server did not stop cleanly"
}

explained=no
for kubectl in "${kubectls[@]}"; do smoke "$kubectl"; done
say "smoke run: $steps checks passed with ${#kubectls[@]} kubectl version(s)"
