//! Ids of sandboxes and containers, which people may give by their beginning.

use super::CriService;
use super::status::rpc_status;
use grpc::tonic::Status;

/// The length of a whole id.
const WHOLE: usize = 64;

impl CriService {
    /// The whole id of a container. One that is unknown stays as it is.
    pub async fn container_id(&self, given: &str) -> Result<String, Status> {
        if given.is_empty() || given.len() >= WHOLE {
            return Ok(given.to_owned());
        }
        let containers = self.runtime.containers(None).await.map_err(rpc_status)?;
        complete(given, containers.into_iter().map(|it| it.id))
    }

    /// The whole id of a sandbox. One that is unknown stays as it is.
    pub async fn sandbox_id(&self, given: &str) -> Result<String, Status> {
        if given.is_empty() || given.len() >= WHOLE {
            return Ok(given.to_owned());
        }
        let sandboxes = self.runtime.sandboxes(None).await.map_err(rpc_status)?;
        complete(given, sandboxes.into_iter().map(|it| it.id))
    }
}

fn complete(given: &str, ids: impl Iterator<Item = String>) -> Result<String, Status> {
    let mut found = Vec::new();
    for id in ids.filter(|it| it.starts_with(given)) {
        if id == given {
            return Ok(id);
        }
        found.push(id);
    }
    match (found.pop(), found.is_empty()) {
        (None, _) => Ok(given.to_owned()),
        (Some(id), true) => Ok(id),
        (Some(_), false) => Err(Status::invalid_argument(format!("several ids begin with {given:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_is_enough_if_no_other_has_it() {
        let find = |given: &str| {
            complete(given, ["abc1", "abc2", "abd", "ab"].map(str::to_owned).into_iter())
                .map_err(|it| it.message().to_owned())
        };
        assert_eq!(find("abd"), Ok("abd".to_owned()));
        assert_eq!(find("abc1"), Ok("abc1".to_owned()));
        assert_eq!(find("ab"), Ok("ab".to_owned()));
        assert_eq!(find("x"), Ok("x".to_owned()));
        assert_eq!(find("abc"), Err("several ids begin with \"abc\"".to_owned()));
    }
}
