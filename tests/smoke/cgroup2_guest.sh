#!/bin/sh
# The checks of cgroup2.sh, in its virtual machine. Lines that begin with `@` are shown; `@ ok` is success.
# Emulation is slow: every wait is for a condition, and ends after minutes.
set -eu
export KUBECONFIG=/etc/pintle.kubeconfig
groups=/sys/fs/cgroup
pods=$groups/kubepods
log=/var/log/up.log

failures=0

say() { echo "@ $*"; }
# A difference: the other checks go on, as a run takes long.
fail() {
  say "error: $*"
  failures=$((failures + 1))
}
trap '[ $? = 0 ] || say "error: the checks ended"' EXIT
# What the rest needs is missing.
die() {
  say "error: $*"
  echo "--- the kernel"
  dmesg | tail -n 15
  echo "--- pods"
  [ ! -e $KUBECONFIG ] || kubectl get pods,events,nodes -A -o wide || true
  find $groups -path '*kubepods*' -type d
  exit 1
}
wait_until() {
  what=$1
  shift
  left=600
  until "$@" >/tmp/waited 2>&1; do
    left=$((left - 1))
    [ $left -gt 0 ] || { cat /tmp/waited && die "$what: not within ten minutes"; }
    sleep 1
  done
}
same() {
  [ "$2" = "$3" ] || fail "$1 is '$2' instead of '$3'"
}
uptime() { cut -d. -f1 /proc/uptime; }

say "  up after $(uptime) s"
[ "$(cat $groups/cgroup.controllers)" ] || die "version 2 has no controllers"
! grep -q ' - cgroup ' /proc/self/mountinfo || die "version 1 is mounted"
say "  controllers: $(cat $groups/cgroup.controllers)"

run_test() {
  /test/containers "$@" 2>&1 | while IFS= read -r line; do
    case $line in 'test '* | *' passed, '*) echo "@   ${line#test }" ;; *) echo "$line" ;; esac
  done | tee /tmp/containers.log
  grep -qE '^@   [1-9][0-9]* passed, 0 failed$' /tmp/containers.log || fail "tests of the runtime failed: $*"
}
run_tests() {
  say "the runtime's tests with the kernel"
  # Those that are skipped take minutes under emulation: hundreds of rounds, or much output. So does an external runtime.
  run_test ${test:+"$test"} --skip _by_runc --skip an_agent_may_be_killed_at_every_step --skip a_killed_agent_leaves_nothing_behind \
    --skip a_flood_of_output_takes_no_memory --skip a_link_that_changes_leads_no_mount_out_of_the_root
  if [ -x /bin/runc ] && [ -z "$test" ]; then
    for name in too_much_memory_ends_a_container divide_its_control_group commands_are_executed; do run_test ${name}_by_runc; done
  fi
  [ -z "$(find $groups -name 'pintle-test*')" ] || fail "the tests leave control groups behind"
  say "  done after $(uptime) s"
}
case ${part:-all} in all | containers) run_tests ;; esac
finish() {
  [ $failures = 0 ] || die "$failures checks failed"
  say ok
  exit 0
}
[ "${part:-all}" != containers ] || finish

say "an image"
mkdir -p /tmp/image/files/bin /tmp/image/files/tmp
cd /tmp/image
cp /bin/busybox files/bin/
for name in sh echo cat sleep hostname tail mkdir rmdir ls touch head; do ln -s busybox files/bin/$name; done
tar -cf layer.tar -C files .
printf '{"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sleep", "1000000"]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
  "$(sha256sum layer.tar | cut -d' ' -f1)" >config.json
echo '[{"Config": "config.json", "RepoTags": ["example.test/box:1"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf image.tar layer.tar config.json manifest.json
cd /
mv /tmp/image/image.tar /tmp/image.tar
rm -rf /tmp/image
pintle images import --data-dir /var/lib/pintle /tmp/image.tar

say "the machine has what a node needs"
pintle check >/tmp/check 2>&1 || true
cat /tmp/check
grep -q '^ok  *cgroups  *version 2, with all controllers' /tmp/check || fail "pintle check: $(grep cgroups /tmp/check)"
! grep -q '^missing' /tmp/check || fail "pintle check: $(grep '^missing' /tmp/check)"

touch $log
tail -f $log &
reserved=100Mi
# The configuration of the agent, with lines of its own.
configure() {
  cat >/etc/agent.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
imageGCHighThresholdPercent: 100
podPidsLimit: 300
systemReserved: {cpu: 100m, memory: $reserved, pid: "1000"}
$1
END
}
up() {
  # in a cgroup of its own, as a service
  mkdir -p $groups/agent
  sh -c "echo 0 >$groups/agent/cgroup.procs; exec pintle up --data-dir /var/lib/pintle --write-kubeconfig $KUBECONFIG \
    --runtime embedded --bind-address 0.0.0.0 --nodeagent-config /etc/agent.yaml" >>$log 2>&1 </dev/null &
  pid=$!
  wait_until "the API server" kubectl get --raw /readyz
  wait_until "the node" kubectl wait --for=condition=Ready node/v2 --timeout=10s
}
eviction='evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}'
say "pintle up"
configure "$eviction"
up
say "  the node is ready after $(uptime) s"
wait_until "the service account" kubectl get serviceaccount default

say "the cgroup of all pods has what the node has for them"
file() { cat "$pods/$1" 2>/dev/null || echo absent; }
capacity=$(kubectl get node v2 -o 'jsonpath={.status.capacity.memory}')
# 1900 thousandths of a CPU are 1945 shares
same kubepods/cpu.weight "$(file cpu.weight)" 75
same kubepods/memory.max "$(file memory.max)" $(((${capacity%Ki} - 102400) * 1024))
same kubepods/memory.min "$(file memory.min)" 0
same kubepods/hugetlb.2MB.max "$(file hugetlb.2MB.max)" $((8 << 21))
same kubepods/besteffort/cpu.weight "$(file besteffort/cpu.weight)" 1
same kubepods/burstable/cpu.weight "$(file burstable/cpu.weight)" 1
threads=$(cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max | sort -n | head -n 1)
same kubepods/pids.max "$(file pids.max)" $((threads - 1000))

say "pods of each class"
# Prints a pod with one container. Nothing is validated by kubectl, whose request for all schemas is slow here. the script is in single quotes of YAML.
pod() {
  cat <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: $2
  containers:
  - {name: c, image: "example.test/box:1", command: [sh, -c, '$4'], resources: {$3}}
---
END
}
work='i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo ready; exec sleep 1000000'
{
  pod g Always 'limits: {cpu: 500m, memory: 64Mi, hugepages-2Mi: 4Mi}' "$work"
  pod b Always 'requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 1, memory: 96Mi}' "$work"
  pod e Always '' "$work"
} | kubectl create --validate=false -f - >/dev/null
kubectl wait --for=condition=Ready pod/g pod/b pod/e --timeout=240s >/dev/null || die "the pods are not ready"
say "  ready after $(uptime) s"
# Sets $of_pod and $of_container to the directories of a pod with one container.
find_groups() {
  uid=$(kubectl get pod "$1" -o 'jsonpath={.metadata.uid}')
  id=$(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].containerID}')
  of_pod=$pods/$2pod$uid
  of_container=$of_pod/${id#*://}
  [ -d "$of_container" ] || die "$of_container is absent"
}
limits() {
  for pair in $2; do same "${1#"$pods"/}/${pair%%=*}" "$(tr ' ' '_' <"$1/${pair%%=*}" || echo absent)" "${pair#*=}"; done
}
score() { cat "/proc/$(head -n 1 "$of_container/cgroup.procs")/oom_score_adj"; }
find_groups g ''
limits "$of_pod" "cpu.weight=20 cpu.max=50000_100000 memory.max=67108864 memory.min=0 memory.high=max pids.max=300 hugetlb.2MB.max=4194304"
limits "$of_container" "cpu.weight=20 cpu.max=50000_100000 memory.max=67108864 memory.swap.max=0 memory.min=0 memory.low=0
  memory.high=max memory.oom.group=0 pids.max=max hugetlb.2MB.max=4194304"
same "the score of g" "$(score)" -997
guaranteed=$of_container
process=$(head -n 1 "$of_container/cgroup.procs")
find_groups b burstable/
limits "$of_pod" "cpu.weight=4 cpu.max=100000_100000 memory.max=100663296 memory.min=0 pids.max=300 hugetlb.2MB.max=0"
limits "$of_container" "cpu.weight=4 cpu.max=100000_100000 memory.max=100663296 memory.swap.max=0 memory.min=0 memory.low=0
  memory.high=max pids.max=max hugetlb.2MB.max=0"
find_groups e besteffort/
limits "$of_pod" "cpu.weight=1 cpu.max=max_100000 memory.max=max memory.min=0 pids.max=300 hugetlb.2MB.max=0"
limits "$of_container" "cpu.weight=1 cpu.max=max_100000 memory.max=max memory.swap.max=max memory.min=0 pids.max=max hugetlb.2MB.max=0"
same "the score of e" "$(score)" 1000
same "burstable/cpu.weight" "$(file burstable/cpu.weight)" 4

say "exec and logs"
for name in g b e; do wait_until "the log of $name" sh -c "[ \"\$(kubectl logs $name)\" = ready ]"; done
same "what exec prints" "$(kubectl exec g -- hostname)" g
same "the cgroup of an executed process" "$(kubectl exec g -- cat /proc/self/cgroup)" 0::/
same "what the container sees of its limit" "$(kubectl exec g -- cat /sys/fs/cgroup/memory.max)" 67108864
! kubectl exec g -- mkdir /sys/fs/cgroup/own 2>/dev/null || fail "the container can change its control group"

say "usage"
node=/api/v1/nodes/v2/proxy
kubectl get --raw $node/metrics/resource >/tmp/metrics
for name in g b e; do
  for metric in container_cpu_usage_seconds_total container_memory_working_set_bytes pod_cpu_usage_seconds_total pod_memory_working_set_bytes; do
    count=$(grep "^$metric{.*pod=\"$name\"" /tmp/metrics | awk '$2 > 0' | wc -l)
    same "the number of $metric of $name" "$count" 1
  done
done
kubectl get --raw $node/stats/summary | tr -d ' \n' >/tmp/summary
for field in usageCoreNanoSeconds workingSetBytes rssBytes; do
  # the node, the agent, all pods, three pods and their containers
  same "the number of $field that are not zero" "$(grep -oE "\"$field\":[1-9]" /tmp/summary | wc -l)" 9
  ! grep -q "\"$field\":0" /tmp/summary || fail "a $field is zero"
done
count=$(kubectl get --raw $node/metrics/cadvisor | grep '^container_spec_memory_limit_bytes{.*container="c".*pod="g"' | awk '$2 == 67108864' | wc -l)
same "the number of container_spec_memory_limit_bytes of g" "$count" 1

say "containers that need too much memory"
reason='jsonpath={.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}'
{
  pod first Never 'limits: {memory: 32Mi}' 'exec tail /dev/zero'
  pod child Never 'limits: {memory: 32Mi}' 'tail /dev/zero; echo the child ended with $?'
} | kubectl create --validate=false -f - >/dev/null
ended() { [ "$(kubectl get pod "$1" -o "$reason")" != ' ' ]; }
wait_until "the end of first" ended first
same "the end of first" "$(kubectl get pod first -o "$reason")" "OOMKilled 137"
wait_until "the end of child" ended child
same "the end of child" "$(kubectl get pod child -o "$reason")" "OOMKilled 0"
same "the log of child" "$(kubectl logs child --tail=1)" "the child ended with 137"
kubectl delete pod first child --wait=false >/dev/null

say "a container that divides its own control group"
cat <<'END' | kubectl create --validate=false -f - >/dev/null
apiVersion: v1
kind: Pod
metadata: {name: divided}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: example.test/box:1
    securityContext: {privileged: true}
    command: [sh, -c, 'cd /sys/fs/cgroup && mkdir first second && echo 1 >first/cgroup.procs &&
      echo +memory +pids >cgroup.subtree_control && echo divided; exec sleep 1000000']
    readinessProbe: {exec: {command: [cat, /sys/fs/cgroup/second/memory.max]}, timeoutSeconds: 60}
END
wait_until "the log of divided" sh -c '[ "$(kubectl logs divided)" = divided ]'
kubectl wait --for=condition=Ready pod/divided --timeout=600s >/dev/null || fail "the pod with a divided cgroup is not ready"
same "the cgroup of a process executed in it" "$(kubectl exec divided -- cat /proc/self/cgroup)" 0::/first
kubectl delete pod divided >/dev/null

say "the agent is killed, and its successor finds the containers"
status='jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'
before=$(kubectl get pod g -o "$status")
kill -KILL $pid
wait $pid 2>/dev/null || true
same "the process of g" "$(head -n 1 "$guaranteed/cgroup.procs")" "$process"
configure "$eviction
featureGates: {MemoryQoS: true}"
up
kubectl wait --for=condition=Ready pod/g pod/b pod/e --timeout=240s >/dev/null || die "the pods are not ready"
same "the container of g" "$(kubectl get pod g -o "$status")" "$before"
same "the process of g" "$(head -n 1 "$guaranteed/cgroup.procs")" "$process"
same "what exec prints" "$(kubectl exec g -- hostname)" g

say "memory is kept and throttled with MemoryQoS"
pod q Always 'requests: {memory: 32Mi}, limits: {memory: 64Mi}' "$work" | kubectl create --validate=false -f - >/dev/null
kubectl wait --for=condition=Ready pod/q --timeout=240s >/dev/null || die "the pod is not ready"
find_groups q burstable/
limits "$of_pod" "memory.min=33554432 memory.max=67108864"
# 80 % of the limit, in whole pages
limits "$of_container" "memory.min=33554432 memory.high=53686272 memory.max=67108864"
# 32 Mi of q and b each, and 64 Mi of g
same burstable/memory.min "$(file burstable/memory.min)" 67108864
same kubepods/memory.min "$(file memory.min)" 134217728

say "pods are deleted"
find_groups b burstable/
gone=$of_pod
kubectl delete pod b q >/dev/null
wait_until "the end of the cgroup of b" test ! -e "$gone"
same "burstable/cpu.weight" "$(file burstable/cpu.weight)" 1

say "memory runs short in the cgroup of all pods"
kill -TERM $pid
wait $pid || fail "pintle ended with an error"
# pods have 300 Mi, of which 230 shall be available; the node has more
reserved=$((${capacity%Ki} - 307200))Ki
configure 'evictionHard: {memory.available: 230Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}'
up
same kubepods/memory.max "$(file memory.max)" 314572800
# files of this machine are in its memory
pod hog Never '' 'head -c 120000000 /dev/zero >/tmp/fill; exec sleep 1000000' | kubectl create --validate=false -f - >/dev/null
evicted() { [ "$(kubectl get pod hog -o 'jsonpath={.status.reason}')" = Evicted ]; }
wait_until "the eviction of hog" evicted
message=$(kubectl get pod hog -o 'jsonpath={.status.message}')
say "  $message"
case $message in
*'low on resource: memory'*'Container c was using '[1-9]*) ;;
*) fail "the message of the eviction is '$message'" ;;
esac
wait_until "memory pressure" sh -c "[ \"\$(kubectl get node v2 -o 'jsonpath={.status.conditions[?(@.type==\"MemoryPressure\")].status}')\" = True ]"

say "nothing is left"
kubectl delete pod --all >/dev/null
left() { [ -z "$(find $pods -path '*/pod*' -type d)" ]; }
wait_until "the end of the cgroups of pods" left
kill -TERM $pid
wait $pid || fail "pintle ended with an error"
[ -z "$(grep kubelet/pods /proc/self/mountinfo || true)" ] || fail "mounts are left: $(grep pod /proc/self/mountinfo)"

say "an agent whose root is the cgroup of a container"
wait_until "the end of the monitors" rmdir $groups/agent
mkdir $groups/box
rm -rf /var/lib/pintle/* $KUBECONFIG
reserved=100Mi
configure "$eviction"
pintle images import --data-dir /var/lib/pintle /tmp/image.tar
sh -c "echo 0 >$groups/box/cgroup.procs; exec unshare -m --propagation private sh -c 'mount --bind $groups/box $groups; mount --make-rshared /; exec pintle up \
  --data-dir /var/lib/pintle --write-kubeconfig $KUBECONFIG --runtime embedded --bind-address 0.0.0.0 --nodeagent-config /etc/agent.yaml'" \
  >>$log 2>&1 </dev/null &
pid=$!
wait_until "the node" kubectl wait --for=condition=Ready node/v2 --timeout=10s
wait_until "the service account" kubectl get serviceaccount default
pod inside Always 'limits: {cpu: 500m, memory: 64Mi}' "$work" | kubectl create --validate=false -f - >/dev/null
kubectl wait --for=condition=Ready pod/inside --timeout=240s >/dev/null || die "the pod is not ready"
pods=$groups/box/kubepods
find_groups inside ''
limits "$of_container" "memory.max=67108864"
same "the processes in the root" "$(cat $groups/box/cgroup.procs)" ''
kubectl delete pod inside >/dev/null
kill -TERM $pid
wait $pid || fail "pintle ended with an error"
say "  all of it after $(uptime) s"
finish
