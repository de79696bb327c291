//! Where may the server listen, and where do clients on this machine find it then?

use super::redact::shown;
use super::tokens::{GOOD_TOKEN, NamedToken, TOKEN_BYTES_MIN};
use anyhow::{Context, bail};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Resolves the listen address. One that others can reach needs a token (S5), and none that can be guessed.
pub async fn addresses(listen: &str, tokens: &[NamedToken]) -> anyhow::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(listen)
        .await
        .with_context(|| format!("`{}` is no address to listen on: write one such as 127.0.0.1:4747", shown(listen)))?
        .collect();
    if addresses.iter().all(|address| address.ip().is_loopback()) {
        return Ok(addresses);
    }
    if tokens.is_empty() {
        bail!(
            "refusing to listen on {listen} without a token: everybody who can reach it could read and write the log. \
             Set ENSUE_TOKEN (such as the output of `{GOOD_TOKEN}`) or --token-file, or listen on 127.0.0.1"
        );
    }
    let weak: Vec<&str> = tokens.iter().filter(|token| token.is_weak()).map(|token| token.name.as_str()).collect();
    if !weak.is_empty() {
        bail!(
            "refusing to listen on {listen} with tokens of fewer than {TOKEN_BYTES_MIN} characters, which can be \
             guessed: {}. Replace each with the output of `{GOOD_TOKEN}`, or listen on 127.0.0.1",
            weak.join(", ")
        );
    }
    Ok(addresses)
}

/// The URL at which a client on the same machine finds a server that listens there.
pub fn client_url(listen: &str) -> anyhow::Result<String> {
    let wrong = || format!("`{}` is no address of a server: write one such as 127.0.0.1:4747", shown(listen));
    let (host, port) = listen.rsplit_once(':').with_context(wrong)?;
    let port: u16 = port.parse().ok().with_context(wrong)?;
    if port == 0 {
        bail!(
            "a server that listens on {listen} takes any free port: give the URL that it printed, with --url or ENSUE_URL"
        );
    }
    // Listening on every address includes this machine's own.
    Ok(match listen.parse::<SocketAddr>().map(|address| address.ip()) {
        Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => format!("http://127.0.0.1:{port}"),
        Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => format!("http://[::1]:{port}"),
        Ok(_) | Err(_) => format!("http://{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_find_a_server_where_it_listens() {
        for (listen, url) in [
            ("127.0.0.1:4747", "http://127.0.0.1:4747"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:80", "http://[::1]:80"),
            ("[::1]:80", "http://[::1]:80"),
            ("localhost:80", "http://localhost:80"),
        ] {
            assert_eq!(client_url(listen).unwrap(), url);
        }
        assert!(client_url("127.0.0.1:0").unwrap_err().to_string().contains("--url"));
        for bad in ["", "nonsense", "127.0.0.1", "h:99999"] {
            assert!(client_url(bad).unwrap_err().to_string().contains("127.0.0.1:4747"), "{bad:?}");
        }
    }

    /// S5: an address that others can reach is refused without a token.
    #[tokio::test]
    async fn only_loopback_needs_no_token() {
        let token = |length: usize| [NamedToken::new("t", &"x".repeat(length)).unwrap()];
        assert!(addresses("127.0.0.1:0", &[]).await.is_ok());
        assert!(addresses("127.0.0.1:0", &token(1)).await.is_ok());
        assert!(addresses("0.0.0.0:0", &token(TOKEN_BYTES_MIN)).await.is_ok());
        assert!(addresses("0.0.0.0:0", &token(TOKEN_BYTES_MIN - 1)).await.is_err());
        for (listen, needle) in
            [("0.0.0.0:0", "ENSUE_TOKEN"), ("[::]:0", "ENSUE_TOKEN"), ("nonsense", "127.0.0.1:4747")]
        {
            let error = addresses(listen, &[]).await.unwrap_err().to_string();
            assert!(error.contains(listen) && error.contains(needle), "{error}");
        }
    }
}
