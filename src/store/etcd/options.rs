//! How to reach etcd, and what of it is ours.

use crate::store::StoreError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Endpoint;

/// How to reach etcd, and what of it is ours.
#[derive(Clone, Debug)]
pub struct Options {
    /// URLs of etcd's members (`http://host:port`), the preferred one first.
    pub endpoints: Vec<String>,
    /// Whom etcd knows us as, if it asks.
    pub user: Option<UserOptions>,
    /// Everything of ours is under this prefix; the tree's keys come behind it. Not empty.
    pub prefix: String,
    /// The largest value that is going to be written: etcd is asked whether it takes that much.
    pub value_bytes_max: usize,
    /// How long one call may take. What was asked of etcd then has an unknown outcome.
    pub call_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".into()],
            user: None,
            prefix: "/zkshim/".into(),
            value_bytes_max: 1024 * 1024,
            call_timeout: Duration::from_secs(10),
        }
    }
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct UserOptions {
    /// Its name.
    pub name: String,
    /// Its password, which no log shows.
    pub password: String,
}

impl fmt::Debug for UserOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.name)
    }
}

/// A member of etcd, and how to come in.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) endpoint: Endpoint,
    pub(super) user: Option<Arc<UserOptions>>,
}

impl Options {
    /// The members, ready to connect to. An entry may itself be a list with commas.
    ///
    /// # Errors
    /// An endpoint is no URL, or there is none, or the prefix is empty.
    pub(super) fn checked_members(&self) -> Result<Vec<Member>, StoreError> {
        if self.prefix.is_empty() {
            return Err(StoreError::Option("the prefix must not be empty".into()));
        }
        let urls = self.endpoints.iter().flat_map(|list| list.split(','));
        let urls = urls.map(str::trim).filter(|url| !url.is_empty());
        let endpoints = urls.map(endpoint).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(StoreError::Option("no etcd endpoint is given".into()));
        }
        let user = self.user.clone().map(Arc::new);
        let member = |endpoint| Member { endpoint, user: user.clone() };
        Ok(endpoints.into_iter().map(member).collect())
    }
}

fn endpoint(url: &str) -> Result<Endpoint, StoreError> {
    let wrong = |reason: &str| StoreError::Option(format!("etcd endpoint {url:?}: {reason}"));
    if !url.starts_with("http://") {
        return Err(wrong("it must begin with http://"));
    }
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| wrong("it is no URL"))?;
    let authority = endpoint.uri().authority();
    if authority.is_none_or(|authority| authority.port_u16().is_none()) {
        return Err(wrong("it must be http://host:port"));
    }
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        // A page or a revision may be large, and must not wait for a round trip every 64 KiB.
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(2 * WINDOW_BYTES)
        // etcd closes connections that ping more often than every 5 s (grpc-keepalive-min-time).
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true))
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const WINDOW_BYTES: u32 = 8 * 1024 * 1024;
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoints: &[&str]) -> Result<Vec<String>, String> {
        let endpoints = endpoints.iter().map(|&url| url.to_owned()).collect();
        let checked = Options { endpoints, ..Options::default() }.checked_members();
        let name = |member: &Member| member.endpoint.uri().to_string();
        checked.map(|checked| checked.iter().map(name).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_may_be_a_list_with_commas() {
        let expected = ["http://a:1/", "http://b:2/", "http://[::1]:3/"];
        let checked = check(&["http://a:1, http://b:2,", "http://[::1]:3"]);
        assert_eq!(checked, Ok(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn what_cannot_be_an_endpoint_is_refused_with_a_reason() {
        for (url, reason) in [
            ("", "no etcd endpoint is given"),
            ("localhost:2379", "must begin with http://"),
            ("https://a:2379", "must begin with http://"),
            ("http://a", "must be http://host:port"),
            ("http://a b:1", "is no URL"),
        ] {
            let error = check(&[url]).expect_err(url);
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn an_empty_prefix_is_refused() {
        let options = Options { prefix: String::new(), ..Options::default() };
        assert!(matches!(options.checked_members(), Err(StoreError::Option(_))));
    }

    #[test]
    fn a_password_is_not_shown() {
        let user = UserOptions { name: "zk".to_owned(), password: "secret".to_owned() };
        let options = Options { user: Some(user), ..Options::default() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
