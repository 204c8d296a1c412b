//! The table of who may ask for what is part of the documentation: `docs/api.md` has it, and this test keeps the two equal.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::{env, fs, path::Path};

use palyra_daemon::rules::{self, Asks, Credentials, Entry, Needs};

#[test]
fn the_guide_has_the_table_of_who_may_ask_for_what() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let guide = fs::read_to_string(&path).unwrap();
    let (before, rest) = guide.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    let table = table();
    if env::var_os("UPDATE_RULES").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert!(shown == table, "docs/api.md differs: UPDATE_RULES=1 cargo test -p palyra-daemon --test rules");
}

fn table() -> String {
    let mut rules: Vec<_> = rules::all().collect();
    rules.sort_by_key(|rule| (rule.path, rule.method.to_string()));
    let mut table = "\n| route | control: certificate | local: token with | local: console | policy is asked |\n|---|---|---|---|---|\n".to_owned();
    for rule in rules {
        let [control, token, console, asks] = cells(rule.entry);
        table.push_str(&format!("| `{} {}` | {control} | {token} | {console} | {asks} |\n", rule.method, rule.path));
    }
    table
}

fn cells(entry: Entry) -> [String; 4] {
    let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    match entry {
        Entry::Open => ["open", "open", "open", "nothing"].map(str::to_owned),
        Entry::Known(Needs { credentials, scopes, asks }) => {
            let scopes: Vec<_> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
            let token = match (credentials, scopes.is_empty()) {
                (Credentials::Devices | Credentials::Console, _) => "no".to_owned(),
                (Credentials::All | Credentials::Tokens, true) => "any scope".to_owned(),
                (Credentials::All | Credentials::Tokens, false) => scopes.join(" or "),
            };
            let asked = match asks {
                Asks::Nothing => "nothing: it is about the credential itself".to_owned(),
                Asks::About(action, kind) => format!("`{action}` on the {kind}"),
                Asks::Named(action, kind) => format!("`{action}` on that {kind}"),
                Asks::Secret(action) => format!("`{action}` on that secret"),
                Asks::Skill(action) => format!("`{action}` on that skill, or on any where none is named"),
                Asks::Own => {
                    "what is one's own needs nothing more; anything else `journal.read`, or what revoking takes"
                        .to_owned()
                }
                Asks::Kept(action) => format!("`{action}` on the scope that it is kept in"),
                Asks::Gate => "by the gate, about what is proposed".to_owned(),
            };
            let control = matches!(credentials, Credentials::All | Credentials::Devices);
            let console = matches!(credentials, Credentials::All | Credentials::Console);
            [word(control), token, word(console), asked]
        }
    }
}

const BEGIN: &str = "<!-- who may ask for what: begin -->";

const END: &str = "<!-- who may ask for what: end -->";
