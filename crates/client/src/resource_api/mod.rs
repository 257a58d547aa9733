//! The API of one resource: the verbs over its objects, in one namespace or in all.

use crate::client::{Client, Lines};
use crate::error::{Error, unless};
use crate::params::{ListParams, Patch, PathSegment, Query, Rendered, body};
use api::meta::v1::{DeleteOptions, ObjectMeta, PartialObjectMetadata};
use api::{Json, Kinded, List, Resource, from_json, metadata_from_json, to_json};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use std::marker::PhantomData;

const JSON: &str = "application/json";
/// The kinds in which metadata is requested.
const METADATA: &str = "PartialObjectMetadata";
const METADATA_LIST: &str = "PartialObjectMetadataList";

/// After how long the server ends a watch.
const WATCH_SECONDS: &str = "3600";

/// See the module. Cheap to clone.
pub struct Api<K> {
    resource: ResourcePath,
    kind: PhantomData<fn() -> K>,
}

/// Where the objects of a resource are, and the form in which they are requested.
#[derive(Clone)]
pub(crate) struct ResourcePath {
    pub client: Client,
    pub path: String,
    /// Whether only metadata is requested.
    pub metadata_only: bool,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Api { resource: self.resource.clone(), kind: PhantomData }
    }
}

/// The path of the objects of a kind, in a namespace or, if that is empty, in all.
pub fn path_of<K: Resource>(namespace: &str) -> String {
    let (version, plural) = (K::api_version(), &K::kind().plural);
    let root = if version.contains('/') { "apis" } else { "api" };
    match namespace {
        "" => format!("/{root}/{version}/{plural}"),
        namespace => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
    }
}

impl<K: Resource> Api<K> {
    /// The objects of the whole cluster.
    pub fn all(client: &Client) -> Self {
        Api::at(client, path_of::<K>(""))
    }

    pub fn namespaced(client: &Client, namespace: &str) -> Self {
        Api::at(client, path_of::<K>(namespace))
    }

    /// The objects in the namespace of another.
    pub fn beside(client: &Client, object: &impl Resource) -> Self {
        Api::namespaced(client, object.namespace())
    }

    pub async fn create(&self, object: &K) -> Result<K, Error> {
        let request = self.resource.request(Method::POST, Query::new(&self.resource.path), body(object))?;
        self.resource.client.request(request).await
    }

    /// Creates an object of which only the metadata is decoded, without managed fields.
    pub async fn create_rendered(&self, object: &Rendered<K>) -> Result<ObjectMeta, Error> {
        let path = Query::new(&self.resource.path);
        let request = self.resource.request(Method::POST, path, object.body.clone())?;
        Ok(metadata_from_json(&self.resource.client.request_bytes(request).await?)?)
    }

    /// Creates an object without decoding what the server made of it.
    pub async fn submit(&self, object: &K) -> Result<(), Error> {
        let request = self.resource.request(Method::POST, Query::new(&self.resource.path), body(object))?;
        self.resource.client.request_bytes(request).await.map(drop)
    }

    /// Replaces the object of this name.
    pub async fn replace(&self, object: &K) -> Result<K, Error> {
        let path = self.resource.object(object.name(), "")?;
        self.resource.client.request(self.resource.request(Method::PUT, path, body(object))?).await
    }

    pub async fn replace_status(&self, object: &K) -> Result<K, Error> {
        self.replace_subresource(object.name(), "status", object).await
    }
}

impl Api<PartialObjectMetadata> {
    /// The metadata of the objects at a path, of whatever kind they are.
    pub fn metadata(client: &Client, path: impl Into<String>) -> Self {
        let resource = ResourcePath { client: client.clone(), path: path.into(), metadata_only: true };
        Api { resource, kind: PhantomData }
    }
}

impl<K: Json> Api<K> {
    /// The objects at a path, for resources that discovery found.
    pub fn at(client: &Client, path: impl Into<String>) -> Self {
        let resource = ResourcePath { client: client.clone(), path: path.into(), metadata_only: false };
        Api { resource, kind: PhantomData }
    }

    /// The same objects, of which only the metadata is requested.
    pub fn metadata_only(&self) -> Api<PartialObjectMetadata> {
        Api::metadata(&self.resource.client, &self.resource.path)
    }

    pub async fn get(&self, name: &str) -> Result<K, Error> {
        let path = self.resource.object(name, "")?;
        self.resource.client.request(self.resource.request(Method::GET, path, Vec::new())?).await
    }

    /// `None` where there is no such object.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, Error> {
        unless(404, self.get(name).await)
    }

    /// A list, or the page of one.
    pub async fn list(&self, params: &ListParams) -> Result<List<K>, Error> {
        Ok(from_json(&self.resource.list(params).await?)?)
    }

    /// The lines of a watch that begins after a resource version.
    pub async fn watch(&self, params: &ListParams, version: &str) -> Result<Lines, Error> {
        self.resource.watch(params, version).await
    }

    pub async fn patch(&self, name: &str, patch: &Patch) -> Result<K, Error> {
        self.patch_subresource(name, "", patch).await
    }

    pub async fn patch_status(&self, name: &str, patch: &Patch) -> Result<K, Error> {
        self.patch_subresource(name, "status", patch).await
    }

    /// Deletes an object, or begins to.
    pub async fn delete(&self, name: &str, options: &DeleteOptions) -> Result<(), Error> {
        let path = self.resource.object(name, "")?;
        let request = self.resource.request(Method::DELETE, path, to_json(options))?;
        self.resource.client.request_bytes(request).await.map(drop)
    }

    /// Deletes the objects that the selectors match.
    pub async fn delete_collection(&self, options: &DeleteOptions, params: &ListParams) -> Result<(), Error> {
        let mut query = Query::new(&self.resource.path);
        params.selectors(&mut query);
        let request = self.resource.request(Method::DELETE, query, to_json(options))?;
        self.resource.client.request_bytes(request).await.map(drop)
    }

    pub async fn get_subresource<T: Json>(&self, name: &str, subresource: &str) -> Result<T, Error> {
        self.send_subresource(Method::GET, name, subresource, Vec::new()).await
    }

    pub async fn create_subresource<B: Kinded, T: Json>(
        &self,
        name: &str,
        subresource: &str,
        object: &B,
    ) -> Result<T, Error> {
        self.send_subresource(Method::POST, name, subresource, body(object)).await
    }

    pub async fn replace_subresource<B: Kinded, T: Json>(
        &self,
        name: &str,
        subresource: &str,
        object: &B,
    ) -> Result<T, Error> {
        self.send_subresource(Method::PUT, name, subresource, body(object)).await
    }

    async fn send_subresource<T: Json>(
        &self,
        method: Method,
        name: &str,
        subresource: &str,
        body: Vec<u8>,
    ) -> Result<T, Error> {
        let path = self.resource.object(name, subresource)?;
        self.resource.client.request(self.resource.request(method, path, body)?).await
    }

    /// Patches a subresource; an empty one is the object itself.
    pub async fn patch_subresource<T: Json>(
        &self,
        name: &str,
        subresource: &str,
        patch: &Patch,
    ) -> Result<T, Error> {
        self.resource.client.request(self.resource.patch(name, subresource, patch)?).await
    }

    /// Patches an object without decoding what the server made of it.
    pub async fn submit_patch(&self, name: &str, patch: &Patch) -> Result<(), Error> {
        self.resource.client.request_bytes(self.resource.patch(name, "", patch)?).await.map(drop)
    }

    /// Patches the status of an object without decoding what the server made of it.
    pub async fn submit_status_patch(&self, name: &str, patch: &Patch) -> Result<(), Error> {
        self.resource.client.request_bytes(self.resource.patch(name, "status", patch)?).await.map(drop)
    }
}

impl ResourcePath {
    /// The path of an object or of its subresource. An empty name would be the whole collection.
    fn object(&self, name: &str, subresource: &str) -> Result<Query, Error> {
        if name.is_empty() {
            return Err(Error::Request("the name of the object is empty".to_owned()));
        }
        let slash = if subresource.is_empty() { "" } else { "/" };
        Ok(Query::new(format!("{}/{}{slash}{subresource}", self.path, PathSegment(name))))
    }

    fn patch(&self, name: &str, subresource: &str, patch: &Patch) -> Result<Request<Vec<u8>>, Error> {
        let mut path = self.object(name, subresource)?;
        patch.query(&mut path);
        let mut request = self.request(Method::PATCH, path, patch.body().to_vec())?;
        request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(patch.content_type()));
        Ok(request)
    }

    fn request(&self, method: Method, path: Query, body: Vec<u8>) -> Result<Request<Vec<u8>>, Error> {
        self.accepting(METADATA, method, path, body)
    }

    /// The text of a list, or of the page of one.
    pub async fn list(&self, params: &ListParams) -> Result<Bytes, Error> {
        let mut query = Query::new(&self.path);
        params.query(&mut query);
        self.client.request_bytes(self.accepting(METADATA_LIST, Method::GET, query, Vec::new())?).await
    }

    /// `metadata` is the kind that is requested where only metadata is.
    fn accepting(
        &self,
        metadata: &'static str,
        method: Method,
        path: Query,
        body: Vec<u8>,
    ) -> Result<Request<Vec<u8>>, Error> {
        let accept = match self.metadata_only {
            true => format!("{JSON};as={metadata};g={};v=v1", PartialObjectMetadata::group()),
            false => JSON.to_owned(),
        };
        let mut request = Request::builder().method(method).uri(path.into_text()).header(ACCEPT, accept);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, JSON);
        }
        request.body(body).map_err(|error| Error::Request(error.to_string()))
    }

    pub async fn watch(&self, params: &ListParams, version: &str) -> Result<Lines, Error> {
        let mut query = Query::new(&self.path);
        query.pair("watch", "true");
        query.pair("timeoutSeconds", WATCH_SECONDS);
        params.selectors(&mut query);
        query.pair("allowWatchBookmarks", "true");
        query.pair("resourceVersion", version);
        let request = self.request(Method::GET, query, Vec::new())?;
        self.client.request_lines(request).await
    }
}

#[cfg(test)]
mod tests;
