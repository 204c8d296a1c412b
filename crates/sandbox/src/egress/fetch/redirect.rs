//! Where a redirect leads, and what goes there.
//!
//! Guarantees: what is meant for one origin is not sent to another; a body is sent again only where the status says
//! that it has to be; nothing leads from an encrypted connection to one in the open. Does not: ask whether the next
//! host may be reached. That comes first there.

use hyper::{
    body::Bytes,
    header::{self, HeaderMap},
};

use super::{
    FetchMethod,
    error::FetchError,
    headers::FetchHeaders,
    url::{FetchUrl, Scheme},
};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) method: FetchMethod,
    pub(super) url: FetchUrl,
    pub(super) headers: FetchHeaders,
    pub(super) body: Bytes,
}

impl Step {
    /// The request that a response redirects to; none if it does not, or cannot without sending a body again that it
    /// must not.
    ///
    /// `bound` are the headers that only the origin they were given for gets.
    pub(super) fn next(&self, status: u16, headers: &HeaderMap, bound: &[String]) -> Result<Option<Self>, FetchError> {
        let Some((method, carries)) = self.changed_by(status) else { return Ok(None) };
        let Some(location) = self.location(headers)? else { return Ok(None) };
        let bad = |cause| FetchError::BadUrl { from: Box::new(self.url.clone()), cause };
        let url = self.url.join(location).map_err(bad)?;
        if self.url.scheme() == Scheme::Https && url.scheme() == Scheme::Http {
            return Err(FetchError::Downgrade { from: Box::new(self.url.clone()), to: Box::new(url) });
        }
        let leaves = !url.is_same_origin(&self.url);
        let stays_behind = |name: &str| {
            (leaves && (ALWAYS_BOUND.contains(&name) || bound.iter().any(|one| one == name)))
                || (carries == Carries::Nothing && ABOUT_BODY.contains(&name))
        };
        let body = match carries {
            Carries::Body => self.body.clone(),
            Carries::Nothing => Bytes::new(),
        };
        Ok(Some(Self { method, url, headers: self.headers.without(stays_behind), body }))
    }

    /// The method of the next request and whether the body goes with it, if the status redirects.
    fn changed_by(&self, status: u16) -> Option<(FetchMethod, Carries)> {
        use FetchMethod::{Get, Head, Post};
        match (status, self.method) {
            (301 | 302, Post) => Some((Get, Carries::Nothing)),
            (303, Get | Head) => Some((self.method, Carries::Nothing)),
            (303, _) => Some((Get, Carries::Nothing)),
            // Without the body it would be another request, and the status does not say that it may go elsewhere.
            (301 | 302, _) if !self.body.is_empty() => None,
            (301 | 302 | 307 | 308, method) => Some((method, Carries::Body)),
            _ => None,
        }
    }

    fn location<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, FetchError> {
        let mut locations = headers.get_all(header::LOCATION).iter();
        let Some(first) = locations.next() else { return Ok(None) };
        let text = std::str::from_utf8(first.as_bytes()).ok().filter(|_| locations.next().is_none());
        let ambiguous = || FetchError::Protocol {
            host: self.url.host().clone(),
            what: "redirects to something that can be read in two ways",
        };
        text.map(Some).ok_or_else(ambiguous)
    }
}

/// Whether the next request has the body of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carries {
    Body,
    Nothing,
}

/// What only the origin gets that it was given for, whatever the caller says.
const ALWAYS_BOUND: [&str; 2] = ["authorization", "cookie"];

/// What says something about a body that is not there any more.
const ABOUT_BODY: [&str; 7] = [
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-md5",
    "content-type",
    "digest",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn step(method: FetchMethod, url: &str, body: &'static str) -> Step {
        let headers = [("authorization", "a"), ("cookie", "c"), ("x-key", "k"), ("accept", "t"), ("content-type", "j")];
        Step {
            method,
            url: FetchUrl::parse(url).unwrap(),
            headers: FetchHeaders::parse(headers).unwrap(),
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    fn led(step: &Step, status: u16, location: &str) -> Result<Option<Step>, FetchError> {
        let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
        step.next(status, &headers, &["x-key".to_owned()])
    }

    fn names(step: &Step) -> Vec<&str> {
        step.headers.iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn methods_change_as_in_browsers_and_the_body_goes_only_where_it_has_to() {
        use FetchMethod::{Delete, Get, Head, Post, Put};
        let after = |method, body, status| {
            let next = led(&step(method, "https://a.example/", body), status, "/b").unwrap();
            next.map(|next| (next.method, next.body.len()))
        };
        for status in [301, 302] {
            assert_eq!(after(Post, "xyz", status), Some((Get, 0)), "{status}");
            assert_eq!(after(Put, "xyz", status), None, "{status}");
            assert_eq!(after(Delete, "", status), Some((Delete, 0)), "{status}");
            assert_eq!(after(Head, "", status), Some((Head, 0)), "{status}");
        }
        assert_eq!(after(Put, "xyz", 303), Some((Get, 0)));
        assert_eq!(after(Head, "", 303), Some((Head, 0)));
        for status in [307, 308] {
            assert_eq!(after(Post, "xyz", status), Some((Post, 3)), "{status}");
        }
        for status in [200, 201, 300, 304, 305, 306, 309, 400] {
            assert_eq!(after(Get, "", status), None, "{status}");
        }
    }

    #[test]
    fn what_is_meant_for_one_origin_does_not_reach_another() {
        let from = step(FetchMethod::Get, "https://a.example/", "");
        let all = ["accept", "authorization", "content-type", "cookie", "x-key"];
        assert_eq!(names(&led(&from, 302, "/b").unwrap().unwrap()), all);
        for other in ["https://b.example/", "https://a.example:8443/", "//b.a.example/"] {
            assert_eq!(names(&led(&from, 302, other).unwrap().unwrap()), ["accept", "content-type"], "{other}");
        }
        let open = step(FetchMethod::Get, "http://a.example/", "");
        assert_eq!(names(&led(&open, 302, "https://a.example/").unwrap().unwrap()), ["accept", "content-type"]);
    }

    #[test]
    fn a_body_that_is_left_out_leaves_nothing_said_about_it() {
        let next = led(&step(FetchMethod::Post, "https://a.example/", "xyz"), 303, "/b").unwrap().unwrap();
        assert_eq!(names(&next), ["accept", "authorization", "cookie", "x-key"]);
    }

    #[test]
    fn nothing_leads_into_the_open() {
        let refused = led(&step(FetchMethod::Get, "https://a.example/", ""), 302, "http://a.example/").unwrap_err();
        assert!(matches!(refused, FetchError::Downgrade { .. }), "{refused}");
    }

    #[test]
    fn a_redirect_to_nothing_or_to_two_places_is_no_redirect_or_an_error() {
        let from = step(FetchMethod::Get, "https://a.example/", "");
        assert_eq!(from.next(302, &HeaderMap::new(), &[]), Ok(None));
        let mut twice = HeaderMap::new();
        twice.append(header::LOCATION, "/a".parse().unwrap());
        twice.append(header::LOCATION, "/b".parse().unwrap());
        assert!(matches!(from.next(302, &twice, &[]), Err(FetchError::Protocol { .. })));
        assert!(matches!(led(&from, 302, "file:///etc/passwd"), Err(FetchError::BadUrl { .. })));
    }
}
