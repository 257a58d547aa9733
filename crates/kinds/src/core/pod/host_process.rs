//! Containers that are processes of a Windows node: all of a pod or none, in the node's network.

use crate::check::{self, Problems};
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value};

pub(super) fn validate(spec: &Value, path: &Path<'_>, allow_privileged: bool, out: &mut Problems) {
    let said =
        |of: &Value| of.at(&["securityContext", "windowsOptions", "hostProcess"]).and_then(Value::as_bool);
    let of_pod = said(spec);
    let (mut some, mut all) = (false, true);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let path = path.field(list);
        for (at, container) in spec.items(&[list]).iter().enumerate() {
            let own = said(container);
            if let Some((own, of_pod)) = own.zip(of_pod).filter(|(own, of_pod)| own != of_pod) {
                let path = path.index(at);
                let path = path.field("securityContext");
                let path = path.field("windowsOptions");
                let why =
                    format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
                out.push(Problem::invalid(&path.field("hostProcess"), &own.into(), &why));
            }
            let is = own.or(of_pod).unwrap_or(false);
            some |= is;
            all &= is;
        }
    }
    if !some {
        return;
    }
    if !all {
        const WHY: &str =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        out.push(check::invalid_formatted(path, "\"\"", WHY));
    }
    if !read::flag(spec, &["hostNetwork"]) {
        const WHY: &str = "hostNetwork must be true if pod contains any hostProcess containers";
        out.push(Problem::invalid(&path.field("hostNetwork"), &false.into(), WHY));
    }
    if !allow_privileged {
        out.push(Problem::forbidden(path, "hostProcess containers are disallowed by cluster policy"));
    }
}
