//! Values of a store as other writers may leave them: one that is read is served as an object of its kind.

#![no_main]

use env::{Simulated, World};
use fuzz::objects::{NAMES, kind_of, kind_of_text};
use libfuzzer_sys::fuzz_target;
use rest::hooks::Hooks;
use rest::{Api, Storage};
use schema::table::{Kind, Ref};
use schema::{decode, proto};
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};
use store::{BuildId, EncodedBy, RecoveredRecord, Revision, Store};

static WORLD: LazyLock<World> = LazyLock::new(|| Simulated::new(1_700_000_000, 7));
static STORE: LazyLock<Arc<dyn Store>> =
    LazyLock::new(|| Arc::new(store::memory::open(&store::Options::default(), WORLD.clone())));
/// The kinds that are stored as themselves.
static KINDS: LazyLock<Vec<&'static Kind>> = LazyLock::new(|| {
    let is_stored = |it: &&Kind| it.stored_as.is_none() && !it.unstored;
    api::tables::KINDS.iter().copied().filter(is_stored).collect()
});

fuzz_target!(|data: &[u8]| {
    let [choice, writer, value @ ..] = data else { return };
    let Some(kind) = KINDS.get(usize::from(*choice)).copied().or_else(|| kind_of_value(value)) else {
        return;
    };
    let group = kind.group.full(&NAMES.api_domain);
    let (namespace, path) = if kind.namespaced { ("n", "n/o") } else { ("", "o") };
    let record = RecoveredRecord {
        revision: Revision(7),
        key: format!("/registry/{}/{path}", kind.store_key.replace("{group}", &group)).into(),
        value: Some(value.to_vec().into()),
        previous: None,
        at: 0,
        expires_at: None,
        // values of this program are trusted to be in its form
        encoded_by: NonZeroU64::new(u64::from(*writer % 2) * 2).map(|it| EncodedBy::new(BuildId(it))),
        history: false,
    };
    let storage = Storage::new(STORE.clone(), vec![record], Default::default(), WORLD.clone());
    let Ok(storage) = storage else { return };
    let api =
        Api::new(NAMES.clone(), storage.of_build(NonZeroU64::new(1).map(BuildId)), WORLD.clone(), Vec::new());
    let Ok(resource) = api.register(Ref::Static(kind), Hooks::default()) else { return };
    let Some(object) = resource.collection.cache.get(namespace, "o") else { return };
    let Ok(value) = object.value(&resource.collection.kind) else { return };
    let served = decode::json(object.json(), &kind.root).expect("what is served decodes").value;
    assert_eq!(value.text(&["metadata", "name"]), served.text(&["metadata", "name"]));
});

/// The kind that a value names.
fn kind_of_value(value: &[u8]) -> Option<&'static Kind> {
    let named = match proto::open(value) {
        Ok(envelope) => kind_of(&envelope.api_version, &envelope.kind),
        Err(_) => kind_of_text(value)?,
    };
    KINDS.iter().copied().find(|it| std::ptr::eq(*it, named))
}
