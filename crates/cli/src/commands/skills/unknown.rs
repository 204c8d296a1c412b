//! A skill that is not installed: the refusal, with the name that was meant if one comes near.

use std::future::Future;

use palyra_client::{Client, ClientError};
use palyra_package::PackageId;
use palyra_types::word::nearest;

use crate::{failure::Failure, terminal::shown};

/// What was asked of the daemon about a skill. If there is no such skill, the refusal asks whether another one was meant.
pub(super) async fn known<T>(
    daemon: &Client,
    id: &PackageId,
    asked: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, Failure> {
    match asked.await {
        Ok(answer) => Ok(answer),
        Err(error) => Err(refused(daemon, id, error.into()).await),
    }
}

async fn refused(daemon: &Client, id: &PackageId, failure: Failure) -> Failure {
    if failure.code != "unknown_skill" {
        return failure;
    }
    let installed = installed(daemon).await.unwrap_or_default();
    let known: Vec<&str> = installed.iter().map(String::as_str).collect();
    match meant(id, &known) {
        Some(near) => {
            let help = format!("did you mean `{}`? `palyra skills list` shows what is installed", shown(near));
            Failure { help, ..failure }
        }
        None => failure,
    }
}

async fn installed(daemon: &Client) -> Result<Vec<String>, ClientError> {
    Ok(daemon.skills().await?.skills.into_iter().map(|skill| skill.id.as_str().to_owned()).collect())
}

/// The id that comes near in its publisher and in its name. All of it together would come near too easily: two short names of one publisher
/// have most of their letters in common.
fn meant<'a>(id: &PackageId, known: &[&'a str]) -> Option<&'a str> {
    let is_near = |candidate: &&&str| {
        let (publisher, name) = candidate.split_once('/').unwrap_or_default();
        nearest(id.publisher().as_str(), &[publisher]).is_some() && nearest(id.name(), &[name]).is_some()
    };
    let near: Vec<&str> = known.iter().filter(is_near).copied().collect();
    nearest(id.as_str(), &near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_in_either_part_is_taken_for_what_was_meant() {
        let known = ["acme/text-diff", "acme/bar", "palyra/text-diff"];
        let meant = |text: &str| meant(&PackageId::parse(text).unwrap(), &known);
        assert_eq!(meant("acme/text-dif"), Some("acme/text-diff"));
        assert_eq!(meant("acne/text-diff"), Some("acme/text-diff"));
        assert_eq!(meant("plyra/text-dff"), Some("palyra/text-diff"));
        assert_eq!(meant("acme/foo"), None, "a short name of the same publisher is not near");
        assert_eq!(meant("other/bar"), None);
    }
}
