//! Users as UserInfo values of the API.

use crate::string_lists::texts;
use auth::User;
use rest::Requester;
use schema::{Map, Value};

/// The user of a request, for authorizers.
pub(crate) fn user_of(requester: &Requester) -> User {
    User {
        name: requester.name.clone(),
        uid: requester.uid.clone(),
        groups: requester.groups.clone(),
        extra: requester.extra.iter().cloned().collect(),
    }
}

/// A user as UserInfo.
pub(crate) fn user_value(user: &User) -> Value {
    let mut out = Value::map();
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            out.set(&[field], text.as_str());
        }
    }
    if !user.groups.is_empty() {
        out.set(&["groups"], texts(&user.groups));
    }
    if !user.extra.is_empty() {
        out.set(&["extra"], extra_value(user));
    }
    out
}

/// The extra fields of a user.
pub(crate) fn extra_value(user: &User) -> Value {
    let extra = user.extra.iter().map(|(key, values)| (key.clone().into(), texts(values)));
    Value::Map(extra.collect::<Map>())
}
