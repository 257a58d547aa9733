//! The projected volume with the token, the CA bundle and the namespace of a pod.

use env::World;
use names::Names;
use rest::metadata::generated_name;
use schema::Value;

/// More than an hour by an odd amount, by which servers recognize default tokens.
const EXPIRATION_SECONDS: i64 = 3607;

pub struct Volume {
    /// Prefix of the volume names.
    prefix: String,
    /// The mount path.
    path: String,
    /// The ConfigMap with the CA bundle.
    authorities: String,
}

impl Volume {
    pub fn new(names: &Names) -> Self {
        Volume {
            prefix: format!("{}-api-access-", names.prefix),
            path: format!("/var/run/secrets/{}", names.well_known("serviceaccount")),
            authorities: names.root_authority_map(),
        }
    }

    /// Mounts the volume into every container that has nothing at the path yet.
    pub fn mount(&self, pod: &mut Value, world: &World) {
        let volumes = pod.items(&["spec", "volumes"]);
        let named = |name: &str| volumes.iter().any(|one| one.text(&["name"]) == name);
        let existing =
            volumes.iter().map(|one| one.text(&["name"])).find(|name| name.starts_with(&self.prefix));
        let (name, exists) = match existing {
            Some(existing) => (existing.to_owned(), true),
            None => {
                let mut name = generated_name(&self.prefix, world);
                while named(&name) {
                    name = generated_name(&self.prefix, world);
                }
                (name, false)
            }
        };
        let mut used = false;
        for kind in ["initContainers", "containers"] {
            let Some(containers) = pod.at_mut(&["spec", kind]).and_then(Value::as_list_mut) else { continue };
            for container in containers {
                let mut mounts = container.items(&["volumeMounts"]).to_vec();
                if mounts.iter().any(|mount| mount.text(&["mountPath"]) == self.path) {
                    continue;
                }
                let mut mount = Value::map();
                mount.set(&["name"], name.as_str());
                mount.set(&["readOnly"], true);
                mount.set(&["mountPath"], self.path.as_str());
                mounts.push(mount);
                container.set(&["volumeMounts"], mounts);
                used = true;
            }
        }
        if used && !exists {
            let mut volumes = pod.items(&["spec", "volumes"]).to_vec();
            volumes.push(self.volume(&name));
            pod.set(&["spec", "volumes"], volumes);
        }
    }

    fn volume(&self, name: &str) -> Value {
        let mut token = Value::map();
        token.set(&["serviceAccountToken", "expirationSeconds"], EXPIRATION_SECONDS);
        token.set(&["serviceAccountToken", "path"], "token");
        let mut file = Value::map();
        file.set(&["key"], "ca.crt");
        file.set(&["path"], "ca.crt");
        let mut authorities = Value::map();
        authorities.set(&["configMap", "name"], self.authorities.as_str());
        authorities.set(&["configMap", "items"], vec![file]);
        let mut own = Value::map();
        own.set(&["path"], "namespace");
        own.set(&["fieldRef", "apiVersion"], "v1");
        own.set(&["fieldRef", "fieldPath"], "metadata.namespace");
        let mut namespace = Value::map();
        namespace.set(&["downwardAPI", "items"], vec![own]);
        let mut volume = Value::map();
        volume.set(&["name"], name);
        volume.set(&["projected", "sources"], vec![token, authorities, namespace]);
        volume.set(&["projected", "defaultMode"], 0o644);
        volume
    }
}
