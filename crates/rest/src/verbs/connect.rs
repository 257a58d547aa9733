//! Connect: admission of a request that neither reads nor writes its object, such as running a command in it.
//!
//! The parameters of the request are an object, which passes admission like a new one and is never stored.

use crate::model::context::Requester;
use crate::model::error::ApiError;
use crate::model::form::Form;
use crate::model::operation::Operation;
use crate::model::options::Query;
use crate::pipeline::api::{AdmissionAttributes, Api, ReinvocationContext, RequestOptions};
use crate::storage::resource::Resource;
use schema::table::{Scalar, Shape, Type};
use schema::{Value, decode};

/// A request to connect.
pub struct ConnectRequest<'a> {
    pub resource: &'a Resource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
    pub user: &'a Requester,
    /// The form of the parameters.
    pub form: Form<'a>,
}

impl Api {
    /// Runs admission.
    pub async fn connect(&self, to: &ConnectRequest<'_>, query: &Query) -> Result<(), ApiError> {
        let mut options = parameters(query, to.form.ty)?;
        options.set(&["kind"], to.form.kind);
        options.set(&["apiVersion"], to.form.api_version);
        let write = AdmissionAttributes {
            resource: to.resource,
            operation: Operation::Connect,
            namespace: to.namespace,
            name: to.name,
            request_name: to.name,
            subresource: to.subresource,
            user: to.user,
            dry_run: false,
            api: self,
            other: Some(to.form),
            options: RequestOptions::None,
            reinvocation: ReinvocationContext::default(),
        };
        self.mutate(&write, Some(&mut options), None).await?;
        self.validate(&write, &options, None).await
    }
}

/// Parameters as an object of their type, without unknown ones.
fn parameters(query: &Query, ty: &Type) -> Result<Value, ApiError> {
    let mut out = Value::map();
    for field in ty.fields.iter() {
        let name = &*field.name;
        let Some(first) = query.get(name) else { continue };
        let value: Value = match &field.shape {
            Shape::Scalar(Scalar::Bool) => query.flag(name).into(),
            Shape::Scalar(Scalar::String) => first.into(),
            Shape::List(list) => match &list.item {
                Shape::Scalar(Scalar::String) => query.all(name).map(Value::from).collect::<Vec<_>>().into(),
                Shape::Scalar(Scalar::Int32) => numbers(query.all(name))?.into(),
                _ => continue,
            },
            _ => continue,
        };
        out.make_map().insert(name.to_owned(), value);
    }
    decode::tree(out, ty).map(|it| it.value).map_err(|why| ApiError::bad_request(why.to_string()))
}

/// Numbers of ports, several in one parameter or in many.
fn numbers<'q>(given: impl Iterator<Item = &'q str>) -> Result<Vec<Value>, ApiError> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        let parsed = text.parse::<u16>().ok().filter(|_| digits);
        parsed.map(|it| Value::from(i64::from(it))).ok_or_else(|| {
            let text = schema::problem::quoted(text);
            ApiError::bad_request(format!(
                "cannot convert to []int32: strconv.ParseUint: parsing {text}: {why}"
            ))
        })
    };
    given.flat_map(|one| one.split(',')).map(number).collect()
}
