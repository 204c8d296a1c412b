//! Makes sure that conditions ask about the request and not about a fixed entity.
//!
//! `Palyra::User::"ada" in Palyra::Role::"owner"` asks who ada is, and a request only says who its own parties are. The answer
//! would depend on whether ada happens to be one of them, and on what else the slice looks at.
//!
//! Guarantees: in a set whose policies all pass, no decision depends on an entity other than those that the request names. An
//! entity that is written out may be compared with, stand to the right of `in`, and be a member of a set; nowhere else.

use cedar_policy::pst::{BinaryOp, Clause, Expr, Literal, Template};

use crate::tree::children;

/// The first entity that a policy asks about by name, as it is written.
pub(crate) fn fixed_subject(policy: &Template) -> Option<String> {
    policy.clauses().iter().find_map(|clause| match clause {
        Clause::When(expr) | Clause::Unless(expr) => asked_about(expr),
    })
}

fn asked_about(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(Literal::EntityUID(uid)) => Some(uid.to_string()),
        Expr::BinaryOp { op: BinaryOp::Eq | BinaryOp::NotEq, left, right } => {
            unless_named(left).or_else(|| unless_named(right))
        }
        Expr::BinaryOp { op: BinaryOp::In | BinaryOp::Contains, left, right } => {
            asked_about(left).or_else(|| unless_named(right))
        }
        Expr::Is { expr, in_expr, .. } => asked_about(expr).or_else(|| in_expr.as_deref().and_then(unless_named)),
        // What is in a set can be compared, and cannot be taken out again.
        Expr::Set(items) => items.iter().find_map(|item| unless_named(item)),
        other => children(other).into_iter().find_map(asked_about),
    }
}

/// The same, where an entity may be written out.
fn unless_named(expr: &Expr) -> Option<String> {
    if matches!(expr, Expr::Literal(_)) { None } else { asked_about(expr) }
}

#[cfg(test)]
mod tests {
    use cedar_policy::{Policy, pst};

    use super::*;

    fn subject_of(condition: &str) -> Option<String> {
        let text = format!("permit(principal, action, resource) when {{ {condition} }};");
        match Policy::parse(None, text).unwrap().to_pst().unwrap() {
            pst::Policy::Static(policy) => fixed_subject(policy.body()),
            other => panic!("not static: {other}"),
        }
    }

    #[test]
    fn asking_about_a_fixed_entity_is_noticed_however_deep() {
        for condition in [
            r#"U::"ada" in R::"owner""#,
            r#"context.a || !(U::"ada" in [R::"owner"])"#,
            r#"U::"ada".name == "ada""#,
            r#"U::"ada" has name"#,
            r#"(if context.a then U::"ada" else principal) in R::"owner""#,
            r#"{a: U::"ada"}.a in R::"owner""#,
            r#"[U::"ada" in R::"owner"].contains(true)"#,
        ] {
            assert_eq!(subject_of(condition).as_deref(), Some(r#"U::"ada""#), "{condition}");
        }
    }

    #[test]
    fn comparing_with_a_fixed_entity_is_fine() {
        for condition in [
            r#"principal == U::"ada" || U::"ada" != context.on_behalf_of"#,
            r#"principal in R::"owner" && principal in [R::"owner", R::"admin"]"#,
            r#"[U::"ada", U::"bob"].contains(principal)"#,
            r#"context.capabilities.containsAny([C::"network"]) || context.capabilities.contains(C::"network")"#,
            r#"principal is U in R::"owner""#,
        ] {
            assert_eq!(subject_of(condition), None, "{condition}");
        }
    }
}
