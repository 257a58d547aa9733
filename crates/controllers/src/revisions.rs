//! Revisions: what an owner's template was, kept so that it can be again, and so that pods of one template are told from
//! those of another.
//!
//! A revision has a number and holds the template as a patch, which clients apply to the owner to go back:
//!
//! ```text
//! web-7d9b6c5f8   revision: 2   data: {"spec": {"template": {"$patch": "replace", "metadata": ..., "spec": ...}}}
//! ```
//!
//! What always holds: a template is found by what it says and not by its name, so that revisions that were made by
//! somebody else, with other hashes, are as good; the present template has the highest number, and gets a new one when
//! it was another's meanwhile. A name that somebody else has is a collision, which is counted and changes the hash.

use crate::Context;
use crate::controller_ref::{self, Claims, controller_reference, is_controlled_by};
use crate::hash::hash;
use client::informer::Watchable;
use client::retry_on_conflict::{self, NamespacedObject, beside};
use client::{Failure, Informer, Key, Queue, WriteTracker, unless};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Selector;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// By this label the pods of one revision are told from those of another.
pub const HASH_LABEL: &str = "controller-revision-hash";

/// What is left of an owner's name, so that there is room for a hash behind it.
const LONGEST_PREFIX: usize = 223;
/// How many names are tried before the owner is looked at anew.
const TRIES: usize = 10;

/// The revisions of owners of one kind.
pub struct Revisions {
    context: Context,
    written: WriteTracker<ControllerRevision>,
    /// The label by which a revision carries its hash.
    label: String,
}

/// The revisions of an owner.
#[derive(Debug, Clone)]
pub struct History {
    /// That of the present template.
    pub present: Arc<ControllerRevision>,
    /// All others, the oldest first.
    pub old: Vec<Arc<ControllerRevision>>,
    /// How often a name was taken by now.
    pub collisions: i32,
}

impl History {
    pub fn named(&self, name: &str) -> Option<&Arc<ControllerRevision>> {
        self.old.iter().chain([&self.present]).find(|it| it.metadata.name.as_deref() == Some(name))
    }

    /// Those that say the same as the present one: that, and copies that came to be.
    pub fn same(&self) -> impl Iterator<Item = &Arc<ControllerRevision>> {
        self.old.iter().chain([&self.present]).filter(|it| it.data == self.present.data)
    }
}

/// What is to be done so that the present template has a revision; the revisions are in order.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The last is it.
    Keep,
    /// This one is it again, and gets a number.
    Renumber(usize, i64),
    /// It is a new one, with this number.
    Make(i64),
}

fn step(all: &[Arc<ControllerRevision>], template: &PodTemplateSpec, data: &Value) -> Step {
    let next = all.last().map_or(0, |it| it.revision.max(0)).saturating_add(1);
    match all.iter().rposition(|it| holds(it, template, data)) {
        Some(at) if at + 1 == all.len() => Step::Keep,
        Some(at) => Step::Renumber(at, next),
        None => Step::Make(next),
    }
}

/// A template as the patch that brings it back: the bytes that other controllers of the API write for it, which clients
/// compare.
fn data(template: &PodTemplateSpec) -> Value {
    // what an API type looks like in JSON can always be said
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = "replace".into();
    say_not_created(&mut template);
    for volume in template["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        volume.pointer_mut("/ephemeral/volumeClaimTemplate").into_iter().for_each(say_not_created);
    }
    json!({"spec": {"template": template}})
}

/// The metadata of a template are always written, with a time of creation that there is not.
fn say_not_created(template: &mut Value) {
    template["metadata"]["creationTimestamp"] = Value::Null;
}

/// The template that a revision holds.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.pointer("/spec/template")?;
    PodTemplateSpec::deserialize(template).ok()
}

/// Whether a revision holds a template, whoever wrote it down.
fn holds(revision: &ControllerRevision, wanted: &PodTemplateSpec, wanted_data: &Value) -> bool {
    revision.data.as_ref().is_some_and(|it| it.0 == *wanted_data)
        || template(revision).as_ref() == Some(wanted)
}

/// The oldest that are more than are kept; those that are in use do not count.
fn surplus(
    old: &[Arc<ControllerRevision>],
    kept: i32,
    is_used: impl Fn(&ControllerRevision) -> bool,
) -> Vec<&Arc<ControllerRevision>> {
    let mut unused: Vec<_> = old.iter().filter(|it| !is_used(it)).collect();
    unused.truncate(unused.len().saturating_sub(usize::try_from(kept).unwrap_or(0)));
    unused
}

impl Revisions {
    /// From now on owners are looked at when revisions of theirs change, or when some come that they may adopt.
    pub fn follow<O: Watchable + NamespacedObject>(
        context: &Context,
        label: String,
        owners: &Informer<O>,
        selector_of: fn(&O) -> Option<Selector>,
        queue: &Queue<Key>,
    ) -> Self {
        let revisions = context.informer::<ControllerRevision>();
        controller_ref::follow(&revisions, owners, selector_of, queue);
        Revisions { context: context.clone(), written: WriteTracker::new(revisions), label }
    }

    pub fn written(&self) -> &WriteTracker<ControllerRevision> {
        &self.written
    }

    /// What stands for a revision in labels.
    pub fn hash<'a>(&self, revision: &'a ControllerRevision) -> &'a str {
        let labelled = revision.metadata.labels.as_ref().and_then(|it| it.get(&self.label));
        labelled.or(revision.metadata.name.as_ref()).map_or("", String::as_str)
    }

    /// The revisions of an owner, among them that of its template, which is made or numbered anew where it must be.
    pub async fn history<O: NamespacedObject>(
        &self,
        owner: &O,
        selector: &Selector,
        template: &PodTemplateSpec,
        mut collisions: i32,
    ) -> Result<History, Failure> {
        let client = &self.context.client;
        let claims = Claims { client, written: &self.written, finalizer: None, looked_at: |_| true };
        let mut all = claims.claim(owner, Some(selector), |_| true).await?;
        all.sort_by_cached_key(|it| (it.revision, it.creation_timestamp(), it.name_any()));
        let data = data(template);
        let present = match step(&all, template, &data) {
            Step::Keep => all.pop(),
            Step::Renumber(at, number) => {
                let again = all.remove(at);
                let written = retry_on_conflict::object(client, &*again, |it| it.revision = number).await?;
                written.iter().for_each(|it| self.written.wrote(&Key::of(owner), it));
                written.map(Arc::new)
            }
            Step::Make(number) => Some(self.make(owner, template, &data, number, &mut collisions).await?),
        };
        let present = present.ok_or_else(|| Failure::Other("a revision is gone".to_owned()))?;
        Ok(History { present, old: all, collisions })
    }

    async fn make<O: NamespacedObject>(
        &self,
        owner: &O,
        template: &PodTemplateSpec,
        data: &Value,
        number: i64,
        collisions: &mut i32,
    ) -> Result<Arc<ControllerRevision>, Failure> {
        let api = beside::<ControllerRevision>(&self.context.client, owner);
        for _ in 0..TRIES {
            let new = self.revision(owner, template, data, number, *collisions);
            let made = match api.create(&PostParams::default(), &new).await {
                Ok(made) => made,
                Err(kube::Error::Api(answer)) if answer.code == 409 => {
                    let Some(there) = unless(404, api.get(&new.name_any()).await)? else { continue };
                    if !is_controlled_by(&there, owner) || !holds(&there, template, data) {
                        *collisions = collisions.saturating_add(1);
                        continue;
                    }
                    // made before, and not seen yet
                    there
                }
                Err(why) => return Err(why.into()),
            };
            self.written.wrote(&Key::of(owner), &made);
            return Ok(Arc::new(made));
        }
        Err(Failure::Other(format!("no name is free for a revision of {}", Key::of(owner))))
    }

    fn revision<O: NamespacedObject>(
        &self,
        owner: &O,
        template: &PodTemplateSpec,
        data: &Value,
        number: i64,
        collisions: i32,
    ) -> ControllerRevision {
        let hash = hash(data, (collisions > 0).then_some(collisions));
        let mut name = owner.name_any();
        // names are letters, digits, dots and dashes
        name.truncate(LONGEST_PREFIX);
        let mut labels = template.metadata.as_ref().and_then(|it| it.labels.clone()).unwrap_or_default();
        labels.insert(self.label.clone(), hash.clone());
        ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{name}-{hash}")),
                namespace: owner.namespace(),
                labels: Some(labels),
                annotations: Some(owner.annotations().clone()),
                owner_references: Some(vec![controller_reference(owner)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data.clone())),
            revision: number,
        }
    }

    /// Removes the oldest revisions that are more than are kept.
    pub async fn trim<O: NamespacedObject>(
        &self,
        owner: &O,
        history: &History,
        kept: i32,
        is_used: impl Fn(&ControllerRevision) -> bool,
    ) -> Result<(), Failure> {
        let api = beside::<ControllerRevision>(&self.context.client, owner);
        for revision in surplus(&history.old, kept, is_used) {
            let same = Preconditions { uid: revision.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
            unless(404, api.delete(&revision.name_any(), &params).await)?;
            self.written.deleted(&Key::of(owner), revision);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(image: &str) -> PodTemplateSpec {
        let json = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": image, "resources": {}}]}
        });
        serde_json::from_value(json).unwrap()
    }

    fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
        Arc::new(ControllerRevision {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            data: Some(RawExtension(data(&asks(image)))),
            revision: number,
        })
    }

    fn next(all: &[(i64, &str)], image: &str) -> Step {
        let all: Vec<_> =
            all.iter().map(|(number, image)| revision(&number.to_string(), *number, image)).collect();
        step(&all, &asks(image), &data(&asks(image)))
    }

    #[test]
    fn the_present_template_has_the_highest_number() {
        assert_eq!(next(&[], "a"), Step::Make(1));
        assert_eq!(next(&[(1, "a")], "a"), Step::Keep);
        assert_eq!(next(&[(1, "a")], "b"), Step::Make(2));
        assert_eq!(next(&[(1, "a"), (2, "b")], "a"), Step::Renumber(0, 3));
        // of copies the newest
        assert_eq!(next(&[(1, "a"), (4, "a"), (7, "b")], "a"), Step::Renumber(1, 8));
        assert_eq!(next(&[(1, "a"), (1, "a")], "a"), Step::Keep);
        assert_eq!(next(&[(-5, "a")], "b"), Step::Make(1));
    }

    #[test]
    fn templates_come_back_from_revisions() {
        let there = revision("r", 1, "a");
        assert_eq!(template(&there), Some(asks("a")));
        let raw = &there.data.as_ref().unwrap().0;
        assert_eq!(raw["spec"]["template"]["$patch"], "replace");
        assert!(template(&ControllerRevision::default()).is_none());
    }

    #[test]
    fn a_revision_is_written_as_others_write_it() {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "a", "resources": {}}], "volumes": [
            {"name": "e", "emptyDir": {}},
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {}}}}}]}});
        let template: PodTemplateSpec = serde_json::from_value(template).unwrap();
        let text = concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null},"spec":{"#,
            r#""containers":[{"image":"a","name":"c","resources":{}}],"#,
            r#""volumes":[{"emptyDir":{},"name":"e"},{"ephemeral":{"volumeClaimTemplate":"#,
            r#"{"metadata":{"creationTimestamp":null},"spec":{"resources":{}}}},"name":"v"}]}}}}"#
        );
        assert_eq!(data(&template).to_string(), text);
    }

    #[test]
    fn it_does_not_matter_who_wrote_a_revision() {
        // written with what is absent as null, and in another order
        let raw = json!({"spec": {"template": {
            "spec": {"containers": [{"resources": {}, "image": "a", "name": "c"}]},
            "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
            "$patch": "replace"
        }}});
        let there = ControllerRevision { data: Some(RawExtension(raw)), ..ControllerRevision::default() };
        assert!(holds(&there, &asks("a"), &data(&asks("a"))));
        assert!(!holds(&there, &asks("b"), &data(&asks("b"))));
        let odd =
            ControllerRevision { data: Some(RawExtension(json!([1]))), ..ControllerRevision::default() };
        assert!(!holds(&odd, &asks("a"), &data(&asks("a"))));
    }

    #[test]
    fn the_oldest_go_that_nobody_uses() {
        let old: Vec<_> = (1..=5).map(|number| revision(&number.to_string(), number, "a")).collect();
        let gone = |kept, used: &[&str]| {
            let all = surplus(&old, kept, |it| used.contains(&it.name_any().as_str()));
            all.iter().map(|it| it.name_any()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(gone(10, &[]), "");
        assert_eq!(gone(3, &[]), "1 2");
        assert_eq!(gone(3, &["1"]), "2");
        assert_eq!(gone(0, &["2", "4"]), "1 3 5");
        assert_eq!(gone(-1, &[]), "1 2 3 4 5");
    }
}
