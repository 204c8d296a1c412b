//! Rules as they stand in a file, and what they find.

use super::*;

fn rules(text: &str) -> HostRules {
    #[derive(Deserialize)]
    struct File {
        host: HostRules,
    }
    toml::from_str::<File>(text).unwrap().host
}

fn rule(text: &str) -> Result<HostRule, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn host(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

#[test]
fn what_is_left_out_is_the_careful_choice() {
    let expected = HostRule {
        host: HostPattern::Exact(host("example.org")),
        ports: BTreeSet::from([443]),
        tls: TlsDemand::ByPort,
        private: PrivateAddresses::Refuse,
    };
    assert_eq!(rule("host = 'Example.ORG'"), Ok(expected));
}

#[test]
fn a_rule_is_read_whole_and_written_as_it_was() {
    let text = "host = \"*.example.org\"\nports = [80, 443]\ntls = \"any\"\nallow_private = true\n";
    let read = rule(text).unwrap();
    assert_eq!(read.host, HostPattern::Below(host("example.org")));
    assert_eq!(read.terms(), Terms { tls: TlsDemand::Any, private: PrivateAddresses::Allow });
    assert_eq!(toml::to_string(&read).unwrap(), text);
    assert_eq!(rule(&toml::to_string(&read).unwrap()), Ok(read));
}

#[test]
fn what_is_no_rule_is_refused() {
    for text in [
        "host = 'example.org'\nport = 443",
        "host = 'example.org'\nports = []",
        "host = 'example.org'\nports = [0]",
        "host = 'example.org'\nports = [65536]",
        "host = 'example.org'\ntls = 'none'",
        "host = 'example.org'\ntls = 'by_port'",
        "host = '*'",
        "host = '*.org'",
        "host = '*.*.org'",
        "host = 'a.*.org'",
        "host = '*example.org'",
        "host = '*.1.2.3.4'",
        "host = '*.[::1]'",
        "host = '*.example.org.'",
        "host = '127.1'",
        "host = 'example.org:443'",
        "ports = [443]",
    ] {
        assert!(rule(text).is_err(), "{text}");
    }
}

#[test]
fn a_wildcard_means_what_is_below_and_nothing_else() {
    let pattern = HostPattern::parse("*.example.org").unwrap();
    for inside in ["a.example.org", "a.b.c.example.org", "A.EXAMPLE.ORG"] {
        assert!(pattern.matches(&host(inside)), "{inside}");
    }
    for outside in ["example.org", "badexample.org", "a.example.org.evil.com", "org", "example.com", "192.0.2.7"] {
        assert!(!pattern.matches(&host(outside)), "{outside}");
    }
}

#[test]
fn the_closest_rule_that_names_the_port_counts() {
    let rules = rules(
        "[[host]]\nhost = '*.example.org'\ntls = 'any'\nports = [443, 22]\n\
         [[host]]\nhost = '*.deep.example.org'\ntls = 'sni'\n\
         [[host]]\nhost = 'a.deep.example.org'\n\
         [[host]]\nhost = 'a.deep.example.org'\nallow_private = true\n",
    );
    let found = |name, port| rules.find(&host(name), port).map(|rule| (rule.host.to_string(), rule.terms()));
    let terms = |tls| Terms { tls, private: PrivateAddresses::Refuse };
    let a = Some(("a.deep.example.org".to_owned(), terms(TlsDemand::ByPort)));
    assert_eq!(found("a.deep.example.org", 443), a);
    assert_eq!(found("b.deep.example.org", 443), Some(("*.deep.example.org".to_owned(), terms(TlsDemand::Sni))));
    assert_eq!(found("a.deep.example.org", 22), Some(("*.example.org".to_owned(), terms(TlsDemand::Any))));
    assert_eq!(found("a.example.org", 80), None);
    assert_eq!(found("example.org", 443), None);
}

#[test]
fn an_empty_list_finds_nothing_and_says_why() {
    let none = HostRules::default();
    assert_eq!(none.find(&host("example.org"), 443), None);
    assert!(
        matches!(none.rule(&host("example.org"), 443), Ruling::Deny(why) if why.kind == EgressRefusalKind::NotListed)
    );
    let one = rules("[[host]]\nhost = 'example.org'");
    assert!(
        matches!(one.rule(&host("example.org"), 22), Ruling::Deny(why) if why.kind == EgressRefusalKind::PortNotListed)
    );
    assert_eq!(one.glance(&host("example.org")), Glance::MayPass);
    assert!(matches!(one.glance(&host("example.net")), Glance::Refused(_)));
}

#[test]
fn the_demand_depends_on_the_port_unless_it_is_said() {
    assert_eq!(TlsDemand::ByPort.on(80), Opening::PlainHttp);
    assert_eq!(TlsDemand::ByPort.on(443), Opening::Tls);
    assert_eq!(TlsDemand::ByPort.on(8080), Opening::Tls);
    assert_eq!(TlsDemand::Sni.on(80), Opening::Tls);
    assert_eq!(TlsDemand::Any.on(80), Opening::Anything);
}
