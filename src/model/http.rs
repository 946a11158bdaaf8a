//! The connection: ureq with the system's roots, made when it is first needed, closed by a cancel.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ureq::http::{self, Uri, header};
use ureq::tls::{RootCerts, TlsConfig};

use super::{BodyParts, ErrorKind, ModelError, Provider, Settings};

/// The proxies of the environment, as curl reads them.
#[derive(Clone, Default)]
pub struct Proxies {
    /// For `http` URLs.
    pub http: Option<String>,
    /// For `https` URLs.
    pub https: Option<String>,
    /// For both, when the one above is missing.
    pub all: Option<String>,
    /// Hosts that are reached directly: names, `.domains` or `*`, separated by commas.
    pub no_proxy: Option<String>,
}

impl std::fmt::Debug for Proxies {
    // Their URLs may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proxies")
    }
}

impl Proxies {
    /// Reads `http_proxy` (small letters only, as CGI programs get HTTP_PROXY from strangers), `https_proxy`,
    /// `all_proxy` and `no_proxy` (either case) through `lookup`. Empty ones count as missing.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        Self {
            http: get("http_proxy"),
            https: get("https_proxy").or_else(|| get("HTTPS_PROXY")),
            all: get("all_proxy").or_else(|| get("ALL_PROXY")),
            no_proxy: get("no_proxy").or_else(|| get("NO_PROXY")),
        }
    }

    fn choose(&self, uri: &Uri) -> Option<&str> {
        if self.is_direct(uri.host().unwrap_or_default()) {
            return None;
        }
        let own = if uri.scheme() == Some(&http::uri::Scheme::HTTPS) { &self.https } else { &self.http };
        own.as_deref().or(self.all.as_deref())
    }

    fn is_direct(&self, host: &str) -> bool {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        self.no_proxy.as_deref().unwrap_or_default().split([',', ' ']).any(|entry| {
            let entry = entry.trim().trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
            match entry.as_str() {
                "" => false,
                "*" => true,
                name => host == name || host.strip_suffix(name).is_some_and(|front| front.ends_with('.')),
            }
        })
    }
}

/// Makes the URL of a request: the base, `/v1` when it has no path, and the API's last part (CONTRACT §13).
pub(super) fn request_url(base: &str, provider: Provider) -> Result<Uri, ModelError> {
    let wrong = |why: String| ModelError::new(ErrorKind::Settings, format!("base URL `{base}`: {why}"));
    let trimmed = base.trim().trim_end_matches('/');
    let uri: Uri = trimmed.parse().map_err(|error: http::uri::InvalidUri| wrong(error.to_string()))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(wrong("it must be like https://host or http://host:port/v1".to_owned()));
    }
    if uri.query().is_some() {
        return Err(wrong("it must not hold a `?`".to_owned()));
    }
    let version = if uri.path().is_empty() || uri.path() == "/" { "/v1" } else { "" };
    let last = match provider {
        Provider::Claude | Provider::Script => "/messages",
        Provider::OpenAi => "/chat/completions",
        Provider::Responses => "/responses",
    };
    format!("{trimmed}{version}{last}")
        .parse()
        .map_err(|error: http::uri::InvalidUri| wrong(error.to_string()))
}

/// Where requests go and what they carry, and the connections that are kept between them.
pub(super) struct Client {
    uri: Uri,
    headers: http::HeaderMap,
    settings: Settings,
    agent: Mutex<Option<Connections>>,
}

/// An agent with its pool. Once shut down by a cancel it is of no more use.
#[derive(Clone)]
pub(super) struct Connections {
    agent: ureq::Agent,
    dead: Arc<AtomicBool>,
    /// A response has come over it: its pool may hold a connection that the server has closed meanwhile.
    used: Arc<AtomicBool>,
}

impl Connections {
    /// Closes everything under way and wakes who waits for it.
    pub(super) fn shutdown(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.agent.clone().shutdown();
    }
}

/// An answer: its status and headers have come.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Box<dyn Read + Send>,
}

/// Why there was no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// Nothing came within the stall timeout.
    Stalled,
    /// A kept connection turned out to be closed: worth one new connection at once.
    Stale,
    /// Anything else.
    Failed(ModelError),
}

impl Client {
    pub(super) fn new(settings: Settings) -> Result<Self, ModelError> {
        let uri = request_url(&settings.base_url, settings.provider)?;
        let headers = headers(&settings)?;
        Ok(Self { uri, headers, settings, agent: Mutex::new(None) })
    }

    /// `scheme://host:port`, for messages: where a request goes, without what may be secret.
    pub(super) fn place(&self) -> String {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{}://{host}{}", self.uri.scheme_str().unwrap_or_default(), self.uri.path())
    }

    /// Whether the server is on this machine.
    pub(super) fn is_local(&self) -> bool {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The connections to use now: those kept, or new ones.
    pub(super) fn connections(&self) -> Result<Connections, ModelError> {
        let mut slot = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = slot.as_ref().filter(|kept| !kept.dead.load(Ordering::SeqCst)) {
            return Ok(kept.clone());
        }
        let fresh = Connections {
            agent: self.new_agent()?,
            dead: Arc::new(AtomicBool::new(false)),
            used: Arc::new(AtomicBool::new(false)),
        };
        *slot = Some(fresh.clone());
        Ok(fresh)
    }

    fn new_agent(&self) -> Result<ureq::Agent, ModelError> {
        let proxy = match self.settings.proxies.choose(&self.uri) {
            Some(url) => Some(ureq::Proxy::new(url).map_err(|_| {
                ModelError::new(
                    ErrorKind::Settings,
                    "the proxy of the environment is no URL like http://host:port",
                )
            })?),
            None => None,
        };
        // The platform's roots are read when the first TLS connection is made, not here.
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        // Bounding a name look-up costs a thread each time; an address needs none.
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let config = ureq::Agent::config_builder()
            .proxy(proxy)
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("bash-agent/", env!("CARGO_PKG_VERSION")))
            // Compressed streams tend to be held back on their way; one that comes anyhow is decoded.
            .accept_encoding("")
            .timeout_resolve((!is_address).then_some(self.settings.connect_timeout))
            .timeout_connect(Some(self.settings.connect_timeout))
            .timeout_recv_response(Some(self.settings.stall_timeout))
            .timeout_per_read(Some(self.settings.stall_timeout))
            .input_buffer_size(64 * 1024)
            .output_buffer_size(64 * 1024)
            // Between two calls of a turn lies the time that tools take.
            .max_idle_age(std::time::Duration::from_secs(50))
            .build();
        Ok(config.new_agent())
    }

    /// Sends one request and waits for the head of its answer.
    pub(super) fn post(
        &self,
        connections: &Connections,
        body: &mut BodyParts<'_>,
    ) -> Result<Answer, NoAnswer> {
        let mut request = http::Request::post(self.uri.clone());
        if let Some(headers) = request.headers_mut() {
            *headers = self.headers.clone();
            headers.insert(header::CONTENT_LENGTH, body.len().into());
        }
        let request = request
            .body(ureq::SendBody::from_reader(body))
            .map_err(|error| NoAnswer::Failed(ModelError::new(ErrorKind::Settings, error.to_string())))?;
        let was_used = connections.used.load(Ordering::SeqCst);
        match connections.agent.run(request) {
            Ok(response) => {
                connections.used.store(true, Ordering::SeqCst);
                let (parts, body) = response.into_parts();
                let body = Box::new(body.into_with_config().limit(u64::MAX).reader());
                Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
            }
            Err(error) => Err(self.no_answer(error, was_used)),
        }
    }

    fn no_answer(&self, error: ureq::Error, was_used: bool) -> NoAnswer {
        use ureq::{Error, Timeout};
        let failed =
            |kind, why: String| NoAnswer::Failed(ModelError::new(kind, format!("{}: {why}", self.place())));
        match error {
            Error::Timeout(Timeout::RecvResponse | Timeout::PerRead) => NoAnswer::Stalled,
            Error::Timeout(_) => failed(
                ErrorKind::Network,
                format!("no connection within {} s", self.settings.connect_timeout.as_secs_f32()),
            ),
            Error::Io(error) if was_used && is_closed(&error) => NoAnswer::Stale,
            // A certificate that is not trusted stays so: no retry.
            Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                failed(ErrorKind::Rejected, error.to_string())
            }
            Error::Io(error) => failed(ErrorKind::Network, error.to_string()),
            error @ (Error::HostNotFound | Error::ConnectionFailed | Error::ConnectProxyFailed(_)) => {
                failed(ErrorKind::Network, error.to_string())
            }
            error @ Error::Protocol(_) => failed(ErrorKind::Network, format!("this is no HTTP: {error}")),
            error => failed(ErrorKind::Rejected, error.to_string()),
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn headers(settings: &Settings) -> Result<http::HeaderMap, ModelError> {
    let mut map = http::HeaderMap::new();
    let mut add = |name: &str, value: &str| {
        // The value is not named: it may be a key.
        let wrong = || {
            ModelError::new(ErrorKind::Settings, format!("the header `{name}` holds what no header may hold"))
        };
        let key = http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = http::HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        map.insert(key, value);
        Ok::<(), ModelError>(())
    };
    add("content-type", "application/json")?;
    let bearer = match settings.provider {
        Provider::Claude | Provider::Script => {
            add("anthropic-version", "2023-06-01")?;
            if let (None, Some(key)) = (&settings.auth_token, &settings.key) {
                add("x-api-key", key.expose())?;
            }
            settings.auth_token.as_ref()
        }
        Provider::OpenAi | Provider::Responses => settings.key.as_ref().or(settings.auth_token.as_ref()),
    };
    if let Some(token) = bearer {
        add("authorization", &format!("Bearer {}", token.expose()))?;
    }
    for (name, value) in &settings.headers {
        add(name, value)?;
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Secret;

    #[test]
    fn a_base_without_a_path_gets_v1() {
        let table = [
            ("http://host", "http://host/v1/messages"),
            ("http://host/", "http://host/v1/messages"),
            ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/messages"),
            (" https://host/a/b/ ", "https://host/a/b/messages"),
            ("http://[::1]:1234", "http://[::1]:1234/v1/messages"),
        ];
        for (base, url) in table {
            assert_eq!(request_url(base, Provider::Claude).unwrap().to_string(), url);
        }
        assert_eq!(request_url("http://h", Provider::OpenAi).unwrap().path(), "/v1/chat/completions");
        assert_eq!(request_url("http://h/x", Provider::Responses).unwrap().path(), "/x/responses");
        for base in ["", "host:80", "ftp://host", "http://", "http://host/v1?x=1", "http://a b"] {
            let error = request_url(base, Provider::Claude).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Settings);
            assert!(error.message.contains(base), "{}", error.message);
        }
    }

    #[test]
    fn proxies_are_chosen_by_scheme_and_no_proxy() {
        let vars =
            [("http_proxy", "http://p:1"), ("HTTPS_PROXY", "http://p:2"), ("HTTP_PROXY", "http://evil:3")];
        let lookup =
            |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let mut proxies = Proxies::from_env(lookup);
        let choose = |proxies: &Proxies, url: &str| proxies.choose(&url.parse().unwrap()).map(str::to_owned);
        assert_eq!(choose(&proxies, "http://a.b/").as_deref(), Some("http://p:1"));
        assert_eq!(choose(&proxies, "https://a.b/").as_deref(), Some("http://p:2"));
        proxies.no_proxy = Some("localhost, .b,10.0.0.1".to_owned());
        for direct in ["http://a.b/", "http://b/", "http://LOCALHOST:80/", "http://10.0.0.1/"] {
            assert_eq!(choose(&proxies, direct), None, "{direct}");
        }
        assert_eq!(choose(&proxies, "http://ab/").as_deref(), Some("http://p:1"));
        proxies.no_proxy = Some("*".to_owned());
        assert_eq!(choose(&proxies, "http://ab/"), None);
    }

    #[test]
    fn keys_go_into_the_header_that_the_api_reads() {
        let mut settings = Settings::new(Provider::Claude);
        settings.key = Some(Secret::new(" k1\n"));
        let map = headers(&settings).unwrap();
        assert_eq!((map.get("x-api-key").unwrap().to_str().unwrap(), map.get("authorization")), ("k1", None));
        settings.auth_token = Some(Secret::new("t1"));
        let map = headers(&settings).unwrap();
        assert_eq!(
            (map.get("x-api-key"), map.get("authorization").unwrap().to_str().unwrap()),
            (None, "Bearer t1")
        );
        settings.headers = vec![("X-Bad".to_owned(), "secret\nvalue".to_owned())];
        let error = headers(&settings).unwrap_err();
        assert!(error.message.contains("X-Bad") && !error.message.contains("secret"));
        assert!(!format!("{settings:?}").contains("t1"));
    }
}
