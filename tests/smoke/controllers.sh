#!/usr/bin/env bash
# What kubectl knows about control loops: deployments are made, rolled out, scaled, taken back, paused and removed, and so
# are stateful sets and daemon sets; jobs run by hand and by a schedule; budgets and autoscalers do their part, claims find
# volumes; nodes are closed and emptied.
# There are no nodes: the script says of pods that they are ready. Every step says what it expects and fails when it
# sees something else.
#
#   tests/smoke/controllers.sh              the kubectl of the PATH, and the oldest and newest beside it
#   tests/smoke/controllers.sh KUBECTL...   these
#
#   PINTLE    the binary to test (built when not given)
#   AGAINST   upstream: the loops as a program of their own, beside the upstream API server, where that is installed
#             (PEER_APISERVER and PEER_ETCD name it and its store)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"
# shellcheck source=tests/smoke/upstream.sh
. "$here/upstream.sh"

choose_kubectls "CONTROLLERS" "$@"

namespace=
round=0
ready='{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}'

# Says of all pods in the namespace that they are ready, as they come, until it is ended. Of pods of jobs it says nothing:
# what becomes of those is said by the step, and a word that comes late would take it back.
attend() {
  local pod
  while :; do
    for pod in $(k get pods -n "$namespace" --field-selector status.phase=Pending -l '!job-name' -o name 2>/dev/null); do
      k patch "$pod" -n "$namespace" --subresource=status --type=merge -p "$ready" >/dev/null 2>&1 || true
    done
    sleep 0.2
  done
}

# await PATTERN ARGUMENTS...: kubectl comes to say something that matches.
await() {
  local pattern=$1 waited=0
  shift
  until output=$(k "$@" 2>&1) && grep -qE -- "$pattern" <<<"$output"; do
    [ $((waited += 1)) -le 150 ] || complain "$*" "$pattern within 30 s" - "$output"
    sleep 0.2
  done
  steps=$((steps + 1))
}

rollouts() {
  step "a deployment is made, rolled out, scaled, and rolled out anew"
  expect 'created' create deployment web --image=web:1 --replicas=3
  expect 'successfully rolled out' rollout status deployment/web --timeout=60s
  expect 'web +3/3 +3 +3 ' get deployment web
  expect 'web-[b-z0-9]+ +3 +3 +3 ' get replicasets
  expect 'ScalingReplicaSet.*Scaled up replica set web-[b-z0-9]+ to 3' get events
  expect 'SuccessfulCreate.*Created pod: web-' get events
  expect 'scaled' scale deployment/web --replicas=5
  expect 'successfully rolled out' rollout status deployment/web --timeout=60s
  expect 'web +5/5 +5 +5 ' get deployment web
  expect 'image updated' set image deployment/web web=web:2
  expect 'successfully rolled out' rollout status deployment/web --timeout=60s
  expect 'web:2' get pods -o jsonpath='{.items[*].spec.containers[0].image}'
  expect '^2 ' rollout history deployment/web
  expect 'image updated' set image deployment/web '*=web:3'
  expect 'successfully rolled out' rollout status deployment/web --timeout=60s

  step "it is taken back, restarted, paused and resumed"
  expect 'rolled back' rollout undo deployment/web --to-revision=1
  expect 'successfully rolled out' rollout status deployment/web --timeout=60s
  expect '^web:1( web:1)*$' get pods -o jsonpath='{.items[*].spec.containers[0].image}'
  expect '^4 ' rollout history deployment/web
  expect 'restarted' rollout restart deployment/web
  expect 'successfully rolled out' rollout status deployment/web --timeout=60s
  expect 'restartedAt' get pods -o jsonpath='{.items[0].metadata.annotations}'
  expect 'paused' rollout pause deployment/web
  expect 'image updated' set image deployment/web web=web:4
  await 'DeploymentPaused' get deployment web -o jsonpath='{.status.conditions[*].reason}'
  expect '^web:1( web:1)*$' get pods -o jsonpath='{.items[*].spec.containers[0].image}'
  expect 'resumed' rollout resume deployment/web
  expect 'successfully rolled out' rollout status deployment/web --timeout=60s
  expect '^web:4( web:4)*$' get pods -o jsonpath='{.items[*].spec.containers[0].image}'
  expect 'NewReplicaSet: +web-[b-z0-9]+ \(5/5 replicas created\)' describe deployment web
}

replicas() {
  step "pods that go are replaced, and others let go"
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"},
    "spec": {"replicas": 2, "selector": {"app": "old"}, "template": {"metadata": {"labels": {"app": "old"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]}}}}'
  await '^2 2$' get rc old -o jsonpath='{.status.replicas} {.status.readyReplicas}'
  local pod
  pod=pod/$(k get pods -l app=old -o jsonpath='{.items[0].metadata.name}')
  expect 'deleted' delete "$pod" --wait=false
  await '^2 2$' get rc old -o jsonpath='{.status.replicas} {.status.readyReplicas}'
  refuse 'not found' get "$pod"
  pod=pod/$(k get pods -l app=old -o jsonpath='{.items[0].metadata.name}')
  expect 'labeled' label "$pod" app=free --overwrite
  await '^$' get "$pod" -o jsonpath='{.metadata.ownerReferences}'
  await '^2 2$' get rc old -o jsonpath='{.status.replicas} {.status.readyReplicas}'
  expect 'scaled' scale rc/old --replicas=0
  await 'No resources' get pods -l app=old
  expect 'deleted' delete rc old --wait=false
}

stateful() {
  step "a stateful set is rolled out in order, anew, back again, and restarted"
  expect 'created' create -f - <<<'{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
    "spec": {"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template":
    {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "db:1"}]}},
    "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}}}}]}}'
  expect '3 new pods have been updated' rollout status statefulset/db --timeout=60s
  expect 'db +3/3 ' get statefulset db
  expect '^db-0 db-1 db-2$' get pods -l app=db -o jsonpath='{.items[*].metadata.name}'
  expect 'data-db-2 ' get pvc
  expect 'create Pod db-0 in StatefulSet db successful' get events
  expect 'image updated' set image statefulset/db c=db:2
  expect '3 new pods have been updated' rollout status statefulset/db --timeout=60s
  expect '^db:2 db:2 db:2$' get pods -l app=db -o jsonpath='{.items[*].spec.containers[0].image}'
  expect '^2 ' rollout history statefulset/db
  expect 'db:1' rollout history statefulset/db --revision=1
  expect 'rolled back' rollout undo statefulset/db --to-revision=1
  await '^db:1 db:1 db:1$' get pods -l app=db -o jsonpath='{.items[*].spec.containers[0].image}'
  await '^3 ' rollout history statefulset/db
  expect 'restarted' rollout restart statefulset/db
  await 'restartedAt' get pod db-0 -o jsonpath='{.metadata.annotations}'
  expect '3 new pods have been updated' rollout status statefulset/db --timeout=60s
  expect 'scaled' scale statefulset/db --replicas=1
  await '^db-0$' get pods -l app=db -o jsonpath='{.items[*].metadata.name}'
  expect 'data-db-2 ' get pvc
  expect 'deleted' delete statefulset db --wait=false
}

daemons() {
  step "a daemon set runs on every node, is rolled out anew, back again, and restarted"
  local node
  for node in "$namespace-a" "$namespace-b"; do
    expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "'"$node"'",
      "labels": {"of": "'"$namespace"'"}}}'
  done
  expect 'created' create -f - <<<'{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log"},
    "spec": {"selector": {"matchLabels": {"app": "log"}}, "updateStrategy": {"type": "RollingUpdate"}, "template":
    {"metadata": {"labels": {"app": "log"}}, "spec": {"nodeSelector": {"of": "'"$namespace"'"},
    "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "log:1"}]}}}}'
  expect 'successfully rolled out' rollout status daemonset/log --timeout=60s
  expect 'log +2 +2 +2 +2 +2 ' get daemonset log
  expect 'image updated' set image daemonset/log c=log:2
  expect 'successfully rolled out' rollout status daemonset/log --timeout=60s
  expect '^log:2 log:2$' get pods -l app=log -o jsonpath='{.items[*].spec.containers[0].image}'
  expect '^2 ' rollout history daemonset/log
  expect 'log:1' rollout history daemonset/log --revision=1
  expect 'rolled back' rollout undo daemonset/log
  expect 'successfully rolled out' rollout status daemonset/log --timeout=60s
  expect '^log:1 log:1$' get pods -l app=log -o jsonpath='{.items[*].spec.containers[0].image}'
  expect '^3 ' rollout history daemonset/log
  expect 'restarted' rollout restart daemonset/log
  expect 'successfully rolled out' rollout status daemonset/log --timeout=60s
  expect 'restartedAt' get pods -l app=log -o jsonpath='{.items[0].metadata.annotations}'
  expect 'SuccessfulCreate.*Created pod: log-' get events
  expect 'deleted' delete node "$namespace-a" --wait=false
  await '^1$' get daemonset log -o jsonpath='{.status.desiredNumberScheduled}'
  expect 'deleted' delete daemonset log --wait=false
}

batch() {
  step "jobs run to an end, by hand and by a schedule"
  local pod done='{"status": {"phase": "Succeeded"}}'
  expect 'created' create job once --image=i
  await 'once-' get pods -l job-name=once -o name
  pod=$(k get pods -l job-name=once -o name)
  expect 'patched' patch "$pod" --subresource=status --type=merge -p "$done"
  expect 'condition met' wait --for=condition=complete job/once --timeout=30s
  expect 'once +1/1 ' get job once
  expect 'Completed.*Job completed' get events
  expect 'created' create cronjob often --image=i --schedule='* * * * *'
  expect 'created' create job by-hand --from=cronjob/often
  await 'by-hand-' get pods -l job-name=by-hand -o name
  expect 'deleted' delete cronjob often --wait=false
}

disruptions() {
  step "a budget allows what it can, and an autoscaler keeps its limits"
  expect 'created' create deployment held --image=i --replicas=3
  expect 'created' create poddisruptionbudget held --selector=app=held --max-unavailable=1
  await '^1 3$' get pdb held -o jsonpath='{.status.disruptionsAllowed} {.status.expectedPods}'
  expect 'autoscaled' autoscale deployment held --min=4 --max=6 --cpu-percent=50
  await '^4$' get deployment held -o jsonpath='{.spec.replicas}'
  await 'FailedGetResourceMetric' describe hpa held
  expect 'deleted' delete hpa held
}

nodes() {
  step "a node is closed, opened again, and emptied"
  local node=worker-$round
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "'"$node"'"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]}}'
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "there"},
    "spec": {"nodeName": "'"$node"'", "containers": [{"name": "c", "image": "i"}]}}'
  await '^0$' get node "$node" -o jsonpath='{.metadata.annotations.node\.alpha\.kubernetes\.io/ttl}'
  expect 'cordoned' cordon "$node"
  await 'unschedulable' get node "$node" -o jsonpath='{.spec.taints[*].key}'
  expect 'uncordoned' uncordon "$node"
  await '^$' get node "$node" -o jsonpath='{.spec.taints}'
  expect 'tainted' taint node "$node" gone=now:NoExecute
  await '^20' get pod there -o jsonpath='{.metadata.deletionTimestamp}'
  await 'DeletionByTaintManager' get pod there -o jsonpath='{.status.conditions[*].reason}'
  await 'TaintManagerEviction.*Marking for deletion Pod '"$namespace"'/there' get events
  await "RegisteredNode.*Node $node event: Registered Node $node in Controller" get events -n default
  expect 'deleted' delete node "$node"
  await "RemovingNode.*Removing Node $node" get events -n default
}

storage() {
  step "claims find volumes, are kept while they are used, and leave what is to be kept"
  local volume=kept-$round class=class-$round node=node-$round attachment
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "'"$volume"'"},
    "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}, "storageClassName": "'"$class"'",
    "csi": {"driver": "d.example.com", "volumeHandle": "'"$volume"'"}}}'
  await "$volume +2Gi +RWO +Retain +Available" get pv "$volume"
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "'"$class"'",
    "resources": {"requests": {"storage": "1Gi"}}}}'
  await "c +Bound +$volume +2Gi +RWO +$class" get pvc c
  await "Bound +$namespace/c +$class" get pv "$volume"

  step "a volume comes to the node of its pod, and goes when the pod does"
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "'"$node"'",
    "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}'
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"},
    "spec": {"nodeName": "'"$node"'", "containers": [{"name": "c", "image": "i"}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}'
  await "d.example.com +$volume +$node" get volumeattachments
  attachment=$(k get volumeattachments -o name | head -n 1)
  expect 'patched' patch "$attachment" --subresource=status --type=merge -p '{"status": {"attached": true}}'
  await "csi/d.example.com\\^$volume" get node "$node" -o jsonpath='{.status.volumesAttached[*].name}'
  await 'SuccessfulAttachVolume' get events
  expect 'deleted' delete pvc c --wait=false
  await 'Terminating' get pvc c
  expect 'deleted' delete pod user --grace-period=0 --force
  await 'No resources' get pvc --field-selector metadata.name=c
  await 'No resources' get volumeattachments
  await 'Released' get pv "$volume"
  expect 'deleted' delete pv "$volume"
  expect 'deleted' delete node "$node"

  step "claims wait for a class, provisioners are requested, and ephemeral volumes get claims"
  expect 'created' create -f - <<<'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "e"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "ephemeral":
    {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "'"$class"'",
    "resources": {"requests": {"storage": "1Gi"}}}}}}]}}'
  await 'e-v +Pending' get pvc e-v
  await 'ProvisioningFailed.*storageclass.storage.k8s.io "'"$class"'" not found' get events
  expect 'created' create -f - <<<'{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
    "metadata": {"name": "'"$class"'"}, "provisioner": "example.com/p"}'
  await 'example.com/p' get pvc e-v -o jsonpath='{.metadata.annotations.volume\.kubernetes\.io/storage-provisioner}'
  await 'ExternalProvisioning' get events
  expect 'deleted' delete storageclass "$class"
  expect 'deleted' delete pod e --grace-period=0 --force
}

everything() {
  round=$((round + 1))
  namespace=loops-$round
  expect 'created' create namespace "$namespace"
  k config set-context --current --namespace "$namespace" >/dev/null
  await 'default' get serviceaccounts
  attend &
  local attending=$!
  rollouts
  replicas
  stateful
  daemons
  batch
  disruptions
  storage
  nodes
  kill "$attending"
  wait "$attending" 2>/dev/null || true
}

# The loops beside somebody else's server, each with an account of its own.
start_beside_upstream() {
  find_binary
  start_upstream
  cat >"$kubeconfig" <<END
{"apiVersion": "v1", "kind": "Config", "current-context": "upstream",
 "clusters": [{"name": "upstream", "cluster": {"server": "$upstream", "insecure-skip-tls-verify": true}}],
 "users": [{"name": "upstream", "user": {"token": "$upstream_token"}}],
 "contexts": [{"name": "upstream", "context": {"cluster": "upstream", "user": "upstream"}}]}
END
  kubectl=${kubectls[0]}
  await '^ok' get --raw /readyz
  "$binary" controller-manager --kubeconfig "$kubeconfig" --secure-port 0 --use-service-account-credentials \
    --service-account-private-key-file "$upstream_home/sa.key" --root-ca-file "$upstream_home/certs/apiserver.crt" \
    >"$server_log" 2>&1 &
  server_pid=$!
}

if [ "${AGAINST:-}" = upstream ]; then
  find_upstream || exit 0
  start_beside_upstream
else
  start_server --ephemeral --components controller-manager
fi
for kubectl in "${kubectls[@]}"; do
  say "controllers with $(basename "$kubectl")"
  everything
done
stop_server
stop_upstream
say "all is well: $steps steps"
