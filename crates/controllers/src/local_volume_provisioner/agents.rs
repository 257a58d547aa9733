//! Requests to the agents of nodes, through the API server.

use client::{Client, Error};
use env::World;
use http::{Method, Request};
use names::local_volumes::AGENT_PATH;
use serde_json::Value;
use std::time::Duration;

/// A folder with many files takes time to remove. The agent goes on after that, and the next request finds less.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Why an agent did not make a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentError {
    /// Another node may have the space.
    NoSpace(String),
    Failed(String),
}

/// See the module.
pub struct NodeAgents {
    pub client: Client,
    pub world: World,
}

impl NodeAgents {
    /// Has the folder of a volume made, and returns its path on the node.
    pub async fn create(&self, node: &str, volume: &str, size: i64) -> Result<String, AgentError> {
        let size = u64::try_from(size).unwrap_or(0);
        let answer = self.send(Method::PUT, &format!("{}?size={size}", path(node, volume))).await;
        let answer = answer.map_err(|error| match error.is(507) {
            true => AgentError::NoSpace(error.message()),
            false => AgentError::Failed(error.message()),
        })?;
        let read: Option<Value> = serde_json::from_slice(&answer).ok();
        let path = read.as_ref().and_then(|it| it.get("path")).and_then(Value::as_str).unwrap_or_default();
        match path.starts_with('/') {
            true => Ok(path.to_owned()),
            false => Err(AgentError::Failed(format!("the agent of node {node:?} sent no path"))),
        }
    }

    /// Has the folder of a volume removed.
    pub async fn remove(&self, node: &str, volume: &str) -> Result<(), String> {
        self.send(Method::DELETE, &path(node, volume)).await.map(drop).map_err(|error| error.message())
    }

    async fn send(&self, method: Method, path: &str) -> Result<Vec<u8>, Error> {
        let request = Request::builder().method(method).uri(path).body(Vec::new());
        let request = request.map_err(|error| Error::Request(error.to_string()))?;
        let answer = env::timeout(&self.world, TIMEOUT, self.client.request_bytes(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(Error::Request(format!("no answer within {TIMEOUT:?}"))));
        answer.map(|it| it.to_vec())
    }
}

fn path(node: &str, volume: &str) -> String {
    format!("/api/v1/nodes/{node}/proxy{AGENT_PATH}/{volume}")
}
