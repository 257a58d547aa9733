//! CronJobs: jobs that are created by a schedule.

use crate::check::{self, Problems};
use crate::core::pod::{gated, template};
use crate::workload::{self, Selector};
use crate::{Options, batch::job, batch::podfailurepolicy as failurepolicy, gates, metadata, read};
use cron::{Schedule, Zone};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

const TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];
/// The longest name of a cron job: the names of its jobs add a suffix.
const LONGEST_NAME: usize = 52;

pub fn hooks(options: Options) -> Hooks {
    if options.allow_privileged { with::<true>() } else { with::<false>() }
}

fn with<const PRIVILEGED: bool>() -> Hooks {
    Hooks {
        decode: DecodeHooks {
            default: Some(|object, _| {
                template::default(object.at_mut(TEMPLATE));
                failurepolicy::default_lists(object.at_mut(&["spec", "jobTemplate", "spec"]));
            }),
            ..DecodeHooks::default()
        },
        create: CreateHooks {
            prepare: Some(|object, context| prepare(object, None, context)),
            validate: Some(create::<PRIVILEGED>),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(|next, old, context| prepare(next, Some(old), context)),
            validate: Some(|new, old, context| {
                gated::keeping(old.at(TEMPLATE), context, |context| {
                    spec::<PRIVILEGED>(new, Some(old), context)
                })
            }),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            warn: Some(warn),
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: &STATUS, ..Subresources::default() },
        ..Hooks::default()
    }
}

/// Removes fields of closed feature gates, unless the old object has them.
fn prepare(object: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    const GUARDED: &[gates::GatedField] = &[(gates::TIME_ZONE, &["spec", "timeZone"])];
    const JOB: &[&str] = &["spec", "jobTemplate", "spec"];
    let of_old = |path: &[&str]| old.and_then(|old| old.at(path));
    gates::drop_disabled(object, old, GUARDED, context);
    failurepolicy::drop_disabled(object.at_mut(JOB), of_old(JOB), context);
    template::prepare(object.at_mut(TEMPLATE), of_old(TEMPLATE), context);
}

static STATUS: [SubresourceHooks; 1] =
    [SubresourceHooks { repeated_metadata_errors: RepeatedMetadataErrors(&[]), ..SubresourceHooks::STATUS }];

fn create<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = spec::<PRIVILEGED>(object, None, context);
    let name = object.text(&["metadata", "name"]);
    if name.len() > LONGEST_NAME {
        let path = Path::ROOT.field("metadata");
        let why = format!("must be no more than {LONGEST_NAME} characters");
        out.push(Problem::invalid_text(&path.field("name"), name, &why));
    }
    out
}

fn spec<const PRIVILEGED: bool>(object: &Value, old: Option<&Value>, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    schedule(spec, &path.field("schedule"), &mut out);
    check::not_negative(spec, "startingDeadlineSeconds", &path, &mut out);
    let zone = spec.at(&["timeZone"]);
    if old.is_none_or(|old| !read::same(old.at(&["spec", "timeZone"]), zone)) {
        time_zone(zone, &path.field("timeZone"), &mut out);
    }
    let policy = spec.text(&["concurrencyPolicy"]);
    check::one_of(policy, &["Allow", "Forbid", "Replace"], &path.field("concurrencyPolicy"), &mut out);
    let job_path = path.field("jobTemplate");
    let job_path = job_path.field("spec");
    let job = spec.at(&["jobTemplate", "spec"]).unwrap_or(&Value::Null);
    job::spec_alone::<PRIVILEGED>(job, context, &job_path, &mut out);
    let selector = Selector::of(job.at(&["selector"]));
    if selector.is_given() {
        const WHY: &str = "`selector` will be auto-generated";
        out.push(check::invalid_formatted(&job_path.field("selector"), &selector.go_text(), WHY));
    }
    if read::flag(job, &["manualSelector"]) {
        let path = job_path.field("manualSelector");
        out.push(check::unsupported_formatted(&path, "true", &["nil", "false"]));
    }
    workload::not_negative(spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], &path, &mut out);
    out
}

fn schedule(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let text = spec.text(&["schedule"]);
    if text.is_empty() {
        out.push(Problem::required(path, ""));
        return;
    }
    if let Err(why) = Schedule::parse(text, Zone::UTC) {
        out.push(Problem::invalid_text(path, text, &why));
    }
    if text.contains("TZ") && read::has(spec, &["timeZone"]) {
        const WHY: &str = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        out.push(Problem::invalid_text(path, text, WHY));
    }
}

fn time_zone(zone: Option<&Value>, path: &Path<'_>, out: &mut Problems) {
    let Some(zone) = zone.and_then(Value::as_str) else { return };
    if zone.is_empty() {
        out.push(Problem::invalid_text(path, zone, "timeZone must be nil or non-empty string"));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        const WHY: &str =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        out.push(Problem::invalid_text(path, zone, WHY));
    }
    if let Err(why) = cron::check_zone(zone) {
        out.push(Problem::invalid_text(path, zone, &why));
    }
}

fn warn(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out = workload::template_warnings(new, old, TEMPLATE);
    if new.text(&["spec", "schedule"]).contains("TZ") {
        let more = Names::kubernetes().well_known("docs/concepts/workloads/controllers/cron-jobs/");
        out.push(format!(
            "CRON_TZ or TZ used in spec.spec.schedule is not officially supported, see https://{more} for more details"
        ));
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let suspend = match object.at(&["spec", "suspend"]).and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match object.text(&["status", "lastScheduleTime"]) {
        "" => "<none>".to_owned(),
        last => metadata::since(last, now),
    };
    let [names, images] = workload::containers(object.at(TEMPLATE));
    vec![
        metadata::name(object),
        object.text(&["spec", "schedule"]).into(),
        suspend.into(),
        (object.items(&["status", "active"]).len() as i64).into(),
        last.into(),
        metadata::age(object, now),
        names,
        images,
        workload::selector_cell(object.at(&["spec", "jobTemplate", "spec", "selector"])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn times_are_clear() {
        let check = |fields: &str, expected: &[&str]| {
            let object = json(fields);
            let mut out = Problems::new();
            schedule(&object, &Path::ROOT.field("schedule"), &mut out);
            time_zone(object.at(&["timeZone"]), &Path::ROOT.field("timeZone"), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(r#"{"schedule":"@daily","timeZone":"Etc/UTC"}"#, &[]);
        check("{}", &["schedule: Required value"]);
        check(
            r#"{"schedule":"TZ=UTC @daily","timeZone":"local"}"#,
            &[
                r#"schedule: Invalid value: "TZ=UTC @daily": cannot use both timeZone field and TZ or CRON_TZ in schedule"#,
                r#"timeZone: Invalid value: "local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"#,
                r#"timeZone: Invalid value: "local": unknown time zone local"#,
            ],
        );
    }
}
