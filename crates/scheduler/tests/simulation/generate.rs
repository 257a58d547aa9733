//! Random nodes, pods and claims.

use serde_json::{Map, Value, json};

use super::random::Random;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
pub const CLAIMS: usize = 8;
/// The CSI driver of provisioned volumes.
pub const DRIVER: &str = "example.com/disk";

/// A node with random labels, taints and resources.
pub fn node(random: &mut Random, name: &str) -> Value {
    let mut labels = Map::new();
    let mut label = |key: &str, value: String| drop(labels.insert(key.to_owned(), json!(value)));
    if !random.once_in(20) {
        label(HOSTNAME, name.to_owned());
    }
    if !random.once_in(8) {
        label(ZONE, format!("z{}", random.below(3)));
    }
    if !random.once_in(4) {
        label("rack", format!("r{}", random.below(4)));
    }
    if random.once_in(2) {
        label("disk", random.pick(&["ssd", "hdd"]).to_owned());
    }
    label("gen", random.below(10).to_string());
    let mut allocatable = json!({
        "cpu": random.pick(&["1", "2", "3", "4", "1500m"]),
        "memory": random.pick(&["1Gi", "2Gi", "4Gi", "8Gi"]),
        "pods": random.pick(&["2", "4", "6", "10"]),
    });
    if random.once_in(4) {
        allocatable["example.com/gpu"] = json!(random.pick(&["0", "1", "2"]));
    }
    if random.once_in(3) {
        let name = random.pick(&["attachable-volumes-aws-ebs", "attachable-volumes-gce-pd"]);
        allocatable[name] = json!("1");
    }
    if random.once_in(8) {
        allocatable[format!("attachable-volumes-csi-{DRIVER}")] = json!(random.pick(&["1", "2"]));
    }
    let mut taints = Vec::new();
    for _ in 0..2 {
        if random.once_in(5) {
            let effect = random.pick(&["NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"]);
            taints.push(
                json!({"key": random.pick(&["t", "u"]), "value": random.pick(&["", "v"]), "effect": effect}),
            );
        }
    }
    let mut images = Vec::new();
    for image in ["web:latest", "db:1"] {
        if random.once_in(3) {
            let size = random.pick(&[30_000_000u64, 500_000_000, 1_200_000_000]);
            images.push(json!({"names": [image], "sizeBytes": size}));
        }
    }
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": random.once_in(12), "taints": taints},
        "status": {"allocatable": allocatable, "images": images},
    })
}

/// The CSI drivers of a node, perhaps with a limit of volumes.
pub fn csi_node(random: &mut Random, name: &str) -> Value {
    let mut driver = json!({"name": DRIVER, "nodeID": name});
    if !random.once_in(4) {
        driver["allocatable"] = json!({"count": random.pick(&[0, 1, 1, 2])});
    }
    json!({"metadata": {"name": name}, "spec": {"drivers": [driver]}})
}

/// The parts that pods of one template share.
#[derive(Clone)]
pub struct Template {
    pub namespace: &'static str,
    pub labels: Value,
    pub spec: Value,
}

fn selector(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}),
        1 => json!({"matchExpressions": [{"key": "rev", "operator": "Exists"}]}),
        _ => json!({"matchLabels": {"app": random.pick(&["a", "b", "c"])}}),
    }
}

fn topology_key(random: &mut Random) -> &'static str {
    random.pick(&[ZONE, ZONE, HOSTNAME, HOSTNAME, "rack"])
}

fn affinity_term(random: &mut Random) -> Value {
    let mut term = json!({"topologyKey": topology_key(random), "labelSelector": selector(random)});
    match random.below(8) {
        0 => term["namespaces"] = json!(["default", "ns-a"]),
        1 => term["namespaceSelector"] = json!({}),
        2 => term["namespaceSelector"] = json!({"matchLabels": {"team": "x"}}),
        _ => {}
    }
    term
}

fn weighted(random: &mut Random, term: Value, field: &str) -> Value {
    json!([{"weight": random.pick(&[1, 10, 100]), field: term}])
}

fn spread(random: &mut Random) -> Value {
    let is_hard = random.once_in(2);
    let mut constraint = json!({
        "maxSkew": random.pick(&[1, 1, 2]),
        "topologyKey": topology_key(random),
        "whenUnsatisfiable": if is_hard { "DoNotSchedule" } else { "ScheduleAnyway" },
        "labelSelector": selector(random),
    });
    if is_hard && random.once_in(4) {
        constraint["minDomains"] = json!(random.pick(&[2, 3, 4]));
    }
    if random.once_in(4) {
        constraint["nodeTaintsPolicy"] = json!("Honor");
    }
    if random.once_in(4) {
        constraint["nodeAffinityPolicy"] = json!("Ignore");
    }
    if random.once_in(4) {
        constraint["matchLabelKeys"] = json!(["rev"]);
    }
    constraint
}

fn node_affinity(random: &mut Random) -> Value {
    let expression = match random.below(5) {
        0 => json!({"key": ZONE, "operator": "In", "values": ["z0", "z1"]}),
        1 => json!({"key": "rack", "operator": "NotIn", "values": ["r0"]}),
        2 => json!({"key": "gen", "operator": "Gt", "values": ["4"]}),
        3 => json!({"key": "disk", "operator": "Exists"}),
        _ => json!({"key": "disk", "operator": "DoesNotExist"}),
    };
    let term = json!({"matchExpressions": [expression]});
    if random.once_in(2) {
        let preferred = weighted(random, term, "preference");
        return json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred});
    }
    let term = match random.once_in(4) {
        true => {
            let name = format!("n{}", random.below(8));
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]})
        }
        false => term,
    };
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}})
}

fn pod_affinity(random: &mut Random, affinity: &mut Value, is_anti: bool) {
    let field = if is_anti { "podAntiAffinity" } else { "podAffinity" };
    let term = affinity_term(random);
    affinity[field] = match random.once_in(2) {
        true => json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]}),
        false => {
            let preferred = weighted(random, term, "podAffinityTerm");
            json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred})
        }
    };
    if random.once_in(4) {
        let another = affinity_term(random);
        let required = &mut affinity[field]["requiredDuringSchedulingIgnoredDuringExecution"];
        match required.as_array_mut() {
            Some(terms) => terms.push(another),
            None => *required = json!([another]),
        }
    }
}

fn requests(random: &mut Random) -> Value {
    let mut requests = json!({});
    if !random.once_in(4) {
        requests["cpu"] = json!(random.pick(&["100m", "500m", "1", "2"]));
    }
    if random.once_in(2) {
        requests["memory"] = json!(random.pick(&["256Mi", "1Gi", "3Gi"]));
    }
    if random.once_in(10) {
        requests["example.com/gpu"] = json!("1");
    }
    json!({"requests": requests})
}

fn volumes(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!([{"name": "v", "gcePersistentDisk":
            {"pdName": random.pick(&["d1", "d2"]), "readOnly": random.once_in(2)}}]),
        1 => json!([{"name": "v", "awsElasticBlockStore": {"volumeID": random.pick(&["e1", "e2", "e3"])}}]),
        _ => {
            let mut first = random.below(CLAIMS);
            let mut volumes = Vec::new();
            for at in 0..1 + usize::from(random.once_in(4)) {
                first = (first + at) % CLAIMS;
                let claim = json!({"claimName": format!("c{first}")});
                volumes.push(json!({"name": format!("v{at}"), "persistentVolumeClaim": claim}));
            }
            json!(volumes)
        }
    }
}

/// A random template.
pub fn template(random: &mut Random) -> Template {
    let image = random.pick(&["web", "db:1", "other:2"]);
    let mut container = json!({"name": "c", "image": image, "resources": requests(random)});
    if random.once_in(8) {
        container["ports"] = json!([{"containerPort": 80, "hostPort": random.pick(&[80, 81]),
            "protocol": "TCP", "hostIP": random.pick(&["", "", "10.0.0.1"])}]);
    }
    let mut spec = json!({"schedulerName": "default-scheduler", "containers": [container]});
    if random.once_in(6) {
        spec["initContainers"] = json!([{"name": "i", "image": "web", "resources": requests(random)}]);
    }
    if random.once_in(8) {
        spec["overhead"] = json!({"memory": "64Mi"});
    }
    if !random.once_in(3) {
        spec["priority"] = json!(random.pick(&[0, 10, 100, -5]));
    }
    if random.once_in(8) {
        spec["preemptionPolicy"] = json!("Never");
    }
    if random.once_in(8) {
        spec["nodeSelector"] = json!({"disk": "ssd"});
    }
    let mut affinity = json!({});
    if random.once_in(4) {
        affinity["nodeAffinity"] = node_affinity(random);
    }
    if random.once_in(4) {
        pod_affinity(random, &mut affinity, false);
    }
    if random.once_in(3) {
        pod_affinity(random, &mut affinity, true);
    }
    spec["affinity"] = affinity;
    if random.once_in(3) {
        let count = 1 + random.below(2);
        spec["topologySpreadConstraints"] = (0..count).map(|_| spread(random)).collect();
    }
    if random.once_in(4) {
        let key = random.pick(&["t", "u"]);
        spec["tolerations"] = match random.below(3) {
            0 => json!([{"operator": "Exists"}]),
            1 => json!([{"key": key, "operator": "Exists"}]),
            _ => json!([{"key": key, "operator": "Equal", "value": "v", "effect": "NoSchedule"}]),
        };
    }
    if random.once_in(4) {
        spec["volumes"] = volumes(random);
    }
    if random.once_in(12) {
        spec["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    }
    if random.once_in(30) {
        spec["schedulerName"] = json!("another-scheduler");
    }
    let mut labels = json!({"app": random.pick(&["a", "b", "c"])});
    if random.once_in(2) {
        labels["rev"] = json!(random.pick(&["1", "2"]));
    }
    Template { namespace: random.pick(&["default", "default", "ns-a"]), labels, spec }
}

/// Storage classes: volumes that exist, volumes that are made, and claims that are bound at once.
pub fn classes() -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str| json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    vec![
        class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        class("made", DRIVER, "WaitForFirstConsumer"),
        class("now", DRIVER, "Immediate"),
    ]
}

/// A volume of a class, perhaps in one zone only.
pub fn volume(random: &mut Random, name: &str, class: &str) -> Value {
    let mut volume = json!({
        "metadata": {"name": name},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
            "capacity": {"storage": random.pick(&["1Gi", "2Gi", "5Gi"])}},
        "status": {"phase": "Available"},
    });
    if class != "local" {
        volume["spec"]["csi"] = json!({"driver": DRIVER, "volumeHandle": name});
    }
    let zone = format!("z{}", random.below(3));
    match random.below(3) {
        0 => {
            let expression = json!({"key": ZONE, "operator": "In", "values": [zone]});
            let terms = json!([{"matchExpressions": [expression]}]);
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
        }
        1 => volume["metadata"]["labels"] = json!({ZONE: zone}),
        _ => {}
    }
    volume
}

/// A claim that is not bound.
pub fn claim(random: &mut Random, namespace: &str, name: &str) -> Value {
    let mode = if random.once_in(4) { "ReadWriteOncePod" } else { "ReadWriteOnce" };
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("claim-{namespace}-{name}")},
        "spec": {"storageClassName": random.pick(&["local", "local", "made", "now"]), "accessModes": [mode],
            "resources": {"requests": {"storage": random.pick(&["1Gi", "2Gi"])}}},
        "status": {"phase": "Pending"},
    })
}
