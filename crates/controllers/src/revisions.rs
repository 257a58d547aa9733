//! The history of an owner's template: one `ControllerRevision` per template that it had.
//!
//! A revision has a number and contains the template as a patch, which clients apply to the owner to roll back:
//!
//! ```text
//! web-7d9b6c5f8   revision: 2   data: {"spec": {"template": {"$patch": "replace", "metadata": ..., "spec": ...}}}
//! ```
//!
//! Always true: a template is found by content and not by name, so revisions that another controller wrote, with other
//! hashes, are used as well; the current template has the highest number, and gets a new one when the owner returns to
//! it. If another object has the name of a new revision, the collision count rises, which changes the hash.

use crate::Context;
use crate::controller_ref::{self, Claims, controller_reference, is_controlled_by};
use crate::hash::hash;
use api::apps::v1::ControllerRevision;
use api::core::v1::PodTemplateSpec;
use api::meta::v1::{DeleteOptions, ObjectMeta};
use api::{Resource, Value};
use apimachinery::labels::Selector;
use client::{Api, Failure, Informer, Key, Queue, WriteTracker, retry_on_conflict, unless};
use std::sync::Arc;

/// The label of pods that identifies their revision.
pub const HASH_LABEL: &str = "controller-revision-hash";

/// The length to which an owner's name is cut, so that a hash fits behind it.
const LONGEST_PREFIX: usize = 223;
/// The number of names that are tried before the owner is reconciled again.
const TRIES: usize = 10;

/// The revisions of owners of one kind.
pub struct Revisions {
    context: Context,
    written: WriteTracker<ControllerRevision>,
    /// The label of a revision that contains its hash.
    label: String,
}

/// The revisions of an owner.
#[derive(Debug, Clone)]
pub struct History {
    /// The revision of the current template.
    pub present: Arc<ControllerRevision>,
    /// All others, the oldest first.
    pub old: Vec<Arc<ControllerRevision>>,
    /// The number of name collisions.
    pub collisions: i32,
}

impl History {
    pub fn named(&self, name: &str) -> Option<&Arc<ControllerRevision>> {
        self.old.iter().chain([&self.present]).find(|it| it.metadata.name == name)
    }

    /// The present revision and its copies.
    pub fn same(&self) -> impl Iterator<Item = &Arc<ControllerRevision>> {
        self.old.iter().chain([&self.present]).filter(|it| it.data == self.present.data)
    }
}

/// The step after which the current template has the latest revision.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The last revision has the template.
    Keep,
    /// The revision at this index has the template, and gets this number.
    Renumber(usize, i64),
    /// Create a revision with this number.
    Make(i64),
}

/// `all` is sorted by number.
fn step(all: &[Arc<ControllerRevision>], template: &PodTemplateSpec, data: &Value) -> Step {
    let next = all.last().map_or(0, |it| it.revision.max(0)).saturating_add(1);
    match all.iter().rposition(|it| holds(it, template, data)) {
        Some(at) if at + 1 == all.len() => Step::Keep,
        Some(at) => Step::Renumber(at, next),
        None => Step::Make(next),
    }
}

/// The patch that restores a template. Clients compare its text, so it is the one that other controllers write: keys
/// are sorted, and metadata has a `creationTimestamp` of null.
fn data(template: &PodTemplateSpec) -> Value {
    // the codec reads what it writes
    let mut template: Value = api::from_json(&api::to_json(template)).unwrap_or_default();
    template.set(&["$patch"], "replace");
    let mut data = Value::map();
    data.set(&["spec", "template"], template);
    data
}

/// The template in a revision.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.at(&["spec", "template"])?.clone();
    template.unset(&["$patch"]);
    api::from_json(&api::to_json(&template)).ok()
}

/// Whether a revision contains a template; the text may differ if another controller wrote it.
fn holds(revision: &ControllerRevision, expected: &PodTemplateSpec, expected_data: &Value) -> bool {
    revision.data == *expected_data || template(revision).as_ref() == Some(expected)
}

/// The oldest revisions beyond the limit, of those that are not in use.
fn surplus(
    old: &[Arc<ControllerRevision>],
    limit: i32,
    is_used: impl Fn(&ControllerRevision) -> bool,
) -> Vec<&Arc<ControllerRevision>> {
    let mut unused: Vec<_> = old.iter().filter(|it| !is_used(it)).collect();
    unused.truncate(unused.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
    unused
}

impl Revisions {
    /// Queues owners when revisions of theirs change, or orphans appear that they may adopt.
    pub fn follow<O: Resource>(
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

    /// The hash of a revision: its label, or else its name.
    pub fn hash<'a>(&self, revision: &'a ControllerRevision) -> &'a str {
        revision.metadata.labels.get(&self.label).unwrap_or(&revision.metadata.name)
    }

    /// Reads the revisions of an owner; creates or renumbers that of its template if necessary.
    pub async fn history<O: Resource>(
        &self,
        owner: &O,
        selector: &Selector,
        template: &PodTemplateSpec,
        mut collisions: i32,
    ) -> Result<History, Failure> {
        let client = &self.context.client;
        let claims = Claims { client, written: &self.written, finalizer: None, looked_at: |_| true };
        let mut all = claims.claim(owner, Some(selector), |_| true).await?;
        all.sort_by(|one, other| {
            let key = |it: &ControllerRevision| (it.revision, it.metadata.creation_timestamp);
            key(one).cmp(&key(other)).then_with(|| one.name().cmp(other.name()))
        });
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

    async fn make<O: Resource>(
        &self,
        owner: &O,
        template: &PodTemplateSpec,
        data: &Value,
        number: i64,
        collisions: &mut i32,
    ) -> Result<Arc<ControllerRevision>, Failure> {
        let api = Api::<ControllerRevision>::beside(&self.context.client, owner);
        for _ in 0..TRIES {
            let new = self.revision(owner, template, data, number, *collisions);
            let created = match api.create(&new).await {
                Ok(created) => created,
                Err(why) if why.is_conflict() => {
                    let Some(existing) = api.get_opt(new.name()).await? else { continue };
                    if !is_controlled_by(&existing, owner) || !holds(&existing, template, data) {
                        *collisions = collisions.saturating_add(1);
                        continue;
                    }
                    // created earlier, and not in the informer yet
                    existing
                }
                Err(why) => return Err(why.into()),
            };
            self.written.wrote(&Key::of(owner), &created);
            return Ok(Arc::new(created));
        }
        Err(Failure::Other(format!("no name is free for a revision of {}", Key::of(owner))))
    }

    fn revision<O: Resource>(
        &self,
        owner: &O,
        template: &PodTemplateSpec,
        data: &Value,
        number: i64,
        collisions: i32,
    ) -> ControllerRevision {
        let hash = hash(data, (collisions > 0).then_some(collisions));
        let mut name = owner.name().to_owned();
        // names are ASCII
        name.truncate(LONGEST_PREFIX);
        let mut labels = template.metadata.labels.clone();
        labels.insert(self.label.clone(), hash.clone());
        ControllerRevision {
            metadata: ObjectMeta {
                name: format!("{name}-{hash}"),
                namespace: owner.namespace().to_owned(),
                labels,
                annotations: owner.metadata().annotations.clone(),
                owner_references: vec![controller_reference(owner)],
                ..ObjectMeta::default()
            },
            data: data.clone(),
            revision: number,
            ..ControllerRevision::default()
        }
    }

    /// Deletes the oldest revisions beyond the limit.
    pub async fn trim<O: Resource>(
        &self,
        owner: &O,
        history: &History,
        limit: i32,
        is_used: impl Fn(&ControllerRevision) -> bool,
    ) -> Result<(), Failure> {
        let api = Api::<ControllerRevision>::beside(&self.context.client, owner);
        for revision in surplus(&history.old, limit, is_used) {
            let preconditions = Some(client::of_uid(revision.uid()).into());
            let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
            unless(404, api.delete(revision.name(), &options).await)?;
            self.written.deleted(&Key::of(owner), revision);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    fn with_image(image: &str) -> PodTemplateSpec {
        object(json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": image, "resources": {}}]}
        }))
    }

    fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
        Arc::new(ControllerRevision {
            metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
            data: data(&with_image(image)),
            revision: number,
            ..ControllerRevision::default()
        })
    }

    fn next(all: &[(i64, &str)], image: &str) -> Step {
        let all: Vec<_> =
            all.iter().map(|(number, image)| revision(&number.to_string(), *number, image)).collect();
        step(&all, &with_image(image), &data(&with_image(image)))
    }

    #[test]
    fn the_current_template_has_the_highest_number() {
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
    fn templates_are_read_from_revisions() {
        let existing = revision("r", 1, "a");
        assert_eq!(template(&existing), Some(with_image("a")));
        assert_eq!(existing.data.text(&["spec", "template", "$patch"]), "replace");
        assert!(template(&ControllerRevision::default()).is_none());
    }

    #[test]
    fn data_is_the_text_that_other_controllers_write() {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "a", "resources": {}}], "volumes": [
            {"name": "e", "emptyDir": {}},
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {}}}}}]}});
        let text = concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null},"spec":{"#,
            r#""containers":[{"image":"a","name":"c","resources":{}}],"#,
            r#""volumes":[{"emptyDir":{},"name":"e"},{"ephemeral":{"volumeClaimTemplate":"#,
            r#"{"metadata":{"creationTimestamp":null},"spec":{"resources":{}}}},"name":"v"}]}}}}"#
        );
        assert_eq!(String::from_utf8(api::to_json(&data(&object(template)))).unwrap(), text);
    }

    #[test]
    fn revisions_of_other_controllers_are_recognized() {
        // absent fields written as null, and keys in another order
        let raw = json!({"spec": {"template": {
            "spec": {"containers": [{"resources": {}, "image": "a", "name": "c"}]},
            "metadata": {"creationTimestamp": null, "labels": {"app": "web"}, "annotations": null},
            "$patch": "replace"
        }}});
        let with_data = |data: serde_json::Value| ControllerRevision {
            data: object(data),
            ..ControllerRevision::default()
        };
        assert!(holds(&with_data(raw.clone()), &with_image("a"), &data(&with_image("a"))));
        assert!(!holds(&with_data(raw), &with_image("b"), &data(&with_image("b"))));
        assert!(!holds(&with_data(json!([1])), &with_image("a"), &data(&with_image("a"))));
    }

    #[test]
    fn the_oldest_unused_revisions_are_surplus() {
        let old: Vec<_> = (1..=5).map(|number| revision(&number.to_string(), number, "a")).collect();
        let deleted = |limit, used: &[&str]| {
            let all = surplus(&old, limit, |it| used.contains(&it.name()));
            all.iter().map(|it| it.name()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(deleted(10, &[]), "");
        assert_eq!(deleted(3, &[]), "1 2");
        assert_eq!(deleted(3, &["1"]), "2");
        assert_eq!(deleted(0, &["2", "4"]), "1 3 5");
        assert_eq!(deleted(-1, &[]), "1 2 3 4 5");
    }
}
