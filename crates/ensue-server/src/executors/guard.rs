//! Which addresses may a webhook be sent to?
//!
//! Whoever can write a handler's URL, or the DNS of a host in one, could otherwise make this server talk to machines that
//! only it can reach (S3). A name is looked up once and the addresses that are refused are left out; what is dialled is an
//! address that was looked at, never the name again.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Lets public addresses through, and those that somebody has allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    allowed: Arc<BTreeSet<IpAddr>>,
    allow_loopback: bool,
}

impl Guard {
    /// Beside public addresses these, and with `allow_loopback` every one of this machine's own.
    pub fn new(allowed: impl IntoIterator<Item = IpAddr>, allow_loopback: bool) -> Self {
        Self { allowed: Arc::new(allowed.into_iter().collect()), allow_loopback }
    }

    /// Refuses an address, and says why.
    pub fn check(&self, address: IpAddr) -> Result<(), String> {
        if self.allowed.contains(&address) || (self.allow_loopback && address.is_loopback()) {
            return Ok(());
        }
        match class(address) {
            None => Ok(()),
            Some(class) => Err(format!(
                "{address} is {class} address, to which no webhook is sent: if it is meant, add it to \
                 `webhooks.allow_private` in the config file"
            )),
        }
    }

    /// The addresses of a host that may be dialled.
    async fn look_up(&self, host: &str) -> Result<Vec<SocketAddr>, String> {
        let found = tokio::net::lookup_host((host, 0)).await;
        let found =
            found.map_err(|error| format!("the host `{host}` cannot be looked up ({error}): check its name"))?;
        let (mut good, mut refused) = (Vec::new(), None);
        for address in found {
            match self.check(address.ip()) {
                Ok(()) => good.push(address),
                Err(reason) => refused = Some(reason),
            }
        }
        match (good.is_empty(), refused) {
            (false, _) => Ok(good),
            (true, Some(reason)) => Err(format!("the host `{host}` leads to nowhere that is allowed: {reason}")),
            (true, None) => Err(format!("the host `{host}` has no address: check its name")),
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let addresses: Addrs = Box::new(guard.look_up(name.as_str()).await?.into_iter());
            Ok(addresses)
        })
    }
}

/// What is special about an address, if it is not a public one.
fn class(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

fn class_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("an unspecified"),
        (127, ..) => Some("a loopback"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("a private"),
        (100, 64..=127, _) => Some("a shared"),
        // Here clouds hand out credentials.
        (169, 254, _) => Some("a link-local"),
        (192, 0, 0 | 2) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) => Some("a reserved"),
        (224..=239, ..) => Some("a multicast"),
        (240.., ..) => Some("a reserved"),
        _ => None,
    }
}

fn class_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback"),
        // These carry an IPv4 address, which may be any.
        [0, 0, 0, 0, 0, 0xffff, ..] => Some("an IPv4-mapped"),
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => Some("an IPv4-compatible"),
        [0x64, 0xff9b, ..] => Some("a NAT64"),
        [0x2002, ..] => Some("a 6to4"),
        [0x2001, 0, ..] => Some("a Teredo"),
        [0x100, 0, 0, 0, ..] | [0x2001, 0xdb8, ..] | [0x2001, 2, 0, ..] | [0x3fff, ..] => Some("a reserved"),
        [first, ..] => match first {
            0xfc00..=0xfdff => Some("a unique-local"),
            0xfe80..=0xfebf => Some("a link-local"),
            0xfec0..=0xfeff => Some("a site-local"),
            0xff00..=0xffff => Some("a multicast"),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S3.
    #[test]
    fn only_public_addresses_are_let_through() {
        let guard = Guard::default();
        for (address, named) in [
            ("127.0.0.1", "loopback"),
            ("127.8.8.8", "loopback"),
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.1.2.3", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("169.254.169.254", "link-local"),
            ("100.100.100.200", "shared"),
            ("192.0.0.192", "reserved"),
            ("198.18.0.1", "reserved"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "mapped"),
            ("::ffff:8.8.8.8", "mapped"),
            ("::127.0.0.1", "compatible"),
            ("64:ff9b::7f00:1", "NAT64"),
            ("64:ff9b:1::7f00:1", "NAT64"),
            ("2002:7f00:1::", "6to4"),
            ("2001::1", "Teredo"),
            ("fd00:ec2::254", "unique-local"),
            ("fc00::1", "unique-local"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
        ] {
            let refusal = guard.check(address.parse().unwrap()).expect_err(address);
            assert!(refusal.contains(named) && refusal.contains("allow_private"), "{refusal}");
        }
        for public in ["8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "2606:4700::1111", "2001:4860::8888"] {
            assert_eq!(guard.check(public.parse().unwrap()), Ok(()), "{public}");
        }
    }

    #[test]
    fn what_is_allowed_is_let_through_and_nothing_beside_it() {
        let guard = Guard::new(["10.1.2.3".parse().unwrap()], false);
        assert_eq!(guard.check("10.1.2.3".parse().unwrap()), Ok(()));
        assert!(guard.check("10.1.2.4".parse().unwrap()).is_err());
        assert!(guard.check("127.0.0.1".parse().unwrap()).is_err());
        let dev = Guard::new([], true);
        assert_eq!((dev.check("127.0.0.1".parse().unwrap()), dev.check("::1".parse().unwrap())), (Ok(()), Ok(())));
        assert!(dev.check("10.1.2.3".parse().unwrap()).is_err());
    }

    #[tokio::test]
    async fn a_name_is_refused_by_where_it_leads() {
        let refusal = Guard::default().look_up("localhost").await.unwrap_err();
        assert!(refusal.contains("localhost") && refusal.contains("loopback"), "{refusal}");
        assert!(!Guard::new([], true).look_up("localhost").await.unwrap().is_empty());
    }
}
