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

/// A block of addresses: its first address, the length of its prefix, and what an address of it is.
type Block<A> = (A, u32, &'static str);

/// The IANA IPv4 Special-Purpose Address Registry (RFC 6890) and multicast. Blocks that are reachable, but belong to
/// infrastructure (AS112, AMT, PCP, TURN), are among them.
const BLOCKS_V4: [Block<Ipv4Addr>; 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a shared"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback"),
    // Here clouds hand out credentials.
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "a documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "a reserved"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "a benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "a documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "a documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast"),
    // With the limited broadcast address.
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved"),
];

/// Public IPv6 addresses are in here; everything else is refused, also what IANA has not given out.
const GLOBAL_UNICAST_V6: (Ipv6Addr, u32) = (v6([0x2000, 0, 0, 0, 0, 0, 0, 0]), 3);

/// The IANA IPv6 Special-Purpose Address Registry, multicast, and what was deprecated. The first block that matches names
/// the address. Addresses that carry an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) are refused whatever it is.
const BLOCKS_V6: [Block<Ipv6Addr>; 24] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0]), 128, "an unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1]), 128, "a loopback"),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0]), 96, "an IPv4-mapped"),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0]), 96, "an IPv4-translated"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0]), 96, "an IPv4-compatible"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0]), 96, "a NAT64"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0]), 48, "a NAT64"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0]), 64, "a discard-only"),
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0]), 64, "a reserved"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 32, "a Teredo"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0]), 48, "a benchmarking"),
    (v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0]), 28, "an ORCHID"),
    (v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0]), 28, "an ORCHID"),
    // Of it also AMT, AS112, PCP, TURN, DETs.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 23, "a reserved"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32, "a documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16, "a 6to4"),
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0]), 48, "a reserved"),
    (v6([0x3ffe, 0, 0, 0, 0, 0, 0, 0]), 16, "a reserved"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20, "a documentation"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0]), 16, "a segment-routing"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0]), 7, "a unique-local"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10, "a link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0]), 10, "a site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8, "a multicast"),
];

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> Ipv6Addr {
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

/// Describes an address that is not a public one.
fn class(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let is_in = |first: Ipv4Addr, prefix: u32| (u32::from(address) ^ u32::from(first)) >> (32 - prefix) == 0;
            BLOCKS_V4.iter().find(|(first, prefix, _)| is_in(*first, *prefix)).map(|(_, _, class)| *class)
        }
        IpAddr::V6(address) => {
            let is_in = |first: Ipv6Addr, prefix: u32| (u128::from(address) ^ u128::from(first)) >> (128 - prefix) == 0;
            let block = BLOCKS_V6.iter().find(|(first, prefix, _)| is_in(*first, *prefix));
            let (global, prefix) = GLOBAL_UNICAST_V6;
            block.map(|(_, _, class)| *class).or((!is_in(global, prefix)).then_some("a reserved"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S3: the first and the last address of every block, and what is next to them.
    #[test]
    fn no_special_purpose_address_is_let_through() {
        let guard = Guard::default();
        let refused = |address: IpAddr, class: &str| {
            let refusal = guard.check(address).expect_err(&address.to_string());
            assert!(refusal.contains(class) && refusal.contains("allow_private"), "{refusal}");
        };
        for (first, prefix, class) in BLOCKS_V4 {
            let last = u32::from(first) | u32::MAX.checked_shr(prefix).unwrap_or(0);
            refused(first.into(), class);
            refused(Ipv4Addr::from(last).into(), class);
        }
        for (first, prefix, _) in BLOCKS_V6 {
            let last = u128::from(first) | u128::MAX.checked_shr(prefix).unwrap_or(0);
            assert!(guard.check(first.into()).is_err() && guard.check(Ipv6Addr::from(last).into()).is_err(), "{first}");
        }
        for (address, class) in [
            ("127.8.8.8", "loopback"),
            ("0.1.2.3", "unspecified"),
            ("169.254.169.254", "link-local"),
            ("100.100.100.200", "shared"),
            ("192.0.0.9", "reserved"),
            ("192.0.0.192", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::2", "compatible"),
            ("::ffff:127.0.0.1", "mapped"),
            ("::ffff:8.8.8.8", "mapped"),
            ("::ffff:0:8.8.8.8", "translated"),
            ("::127.0.0.1", "compatible"),
            ("64:ff9b::8.8.8.8", "NAT64"),
            ("64:ff9b:1:ffff::1", "NAT64"),
            ("64:ff9b:2::1", "reserved"),
            ("100::1", "discard-only"),
            ("100:0:0:1::1", "reserved"),
            ("100:0:0:2::1", "reserved"),
            ("2001::1", "Teredo"),
            ("2001:1::1", "reserved"),
            ("2001:2::1", "benchmarking"),
            ("2001:3::1", "reserved"),
            ("2001:4:112::1", "reserved"),
            ("2001:10::1", "ORCHID"),
            ("2001:2f::1", "ORCHID"),
            ("2001:30::1", "reserved"),
            ("2001:1ff:ffff::1", "reserved"),
            ("2001:db8::1", "documentation"),
            ("2002:808:808::1", "6to4"),
            ("2620:4f:8000::1", "reserved"),
            ("3fff::1", "documentation"),
            ("4000::1", "reserved"),
            ("5f00::1", "segment-routing"),
            ("fd00:ec2::254", "unique-local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("fe00::1", "reserved"),
            ("ff02::1", "multicast"),
            ("1::1", "reserved"),
        ] {
            refused(address.parse().unwrap(), class);
        }
        for public in [
            "1.0.0.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "2620:4f:8001::1",
            "3ffd::1",
            "3fff:1000::1",
        ] {
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
