//! Makes sure that approving never takes anything away.
//!
//! Guarantees: in a set whose policies all pass, whatever is permitted unapproved is permitted approved, errors aside (the
//! engine evaluates both and denies on any error). The check is by syntax, so it is sound but refuses some sets that would be
//! harmless: `context.approved` may stand under `&&`, `||`, `!` and comparisons with `true` and `false`, nowhere else.

use cedar_policy::pst::{BinaryOp, Clause, Effect, Expr, Literal, Template, UnaryOp, Var};

use crate::tree::{children, is_context};

/// How a policy depends on `context.approved`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApprovalUse {
    /// Not at all.
    None,
    /// It applies more often once approved.
    Widens,
    /// It applies less often once approved.
    Narrows,
    /// Neither can be told.
    Unclear,
}

impl ApprovalUse {
    /// How the conditions of a policy, taken together, depend on approval.
    pub(crate) fn of(policy: &Template) -> Self {
        policy.clauses().iter().fold(Self::None, |so_far, clause| {
            so_far.join(match clause {
                Clause::When(expr) => of_expr(expr),
                Clause::Unless(expr) => of_expr(expr).flip(),
            })
        })
    }

    /// Whether a policy of this effect may depend on approval in this way.
    pub(crate) const fn fits(self, effect: Effect) -> bool {
        matches!((self, effect), (Self::None, _) | (Self::Widens, Effect::Permit) | (Self::Narrows, Effect::Forbid))
    }

    const fn flip(self) -> Self {
        match self {
            Self::Widens => Self::Narrows,
            Self::Narrows => Self::Widens,
            same => same,
        }
    }

    const fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, other) => other,
            (this, Self::None) => this,
            (Self::Widens, Self::Widens) => Self::Widens,
            (Self::Narrows, Self::Narrows) => Self::Narrows,
            _ => Self::Unclear,
        }
    }
}

fn of_expr(expr: &Expr) -> ApprovalUse {
    match expr {
        Expr::GetAttr { expr: inner, attr } if is_context(inner) => {
            if attr == "approved" {
                ApprovalUse::Widens
            } else {
                ApprovalUse::None
            }
        }
        Expr::HasAttr { expr: inner, .. } if is_context(inner) => ApprovalUse::None,
        Expr::UnaryOp { op: UnaryOp::Not, expr } => of_expr(expr).flip(),
        Expr::BinaryOp { op: BinaryOp::And | BinaryOp::Or, left, right } => of_expr(left).join(of_expr(right)),
        Expr::BinaryOp { op: op @ (BinaryOp::Eq | BinaryOp::NotEq), left, right } => {
            match (as_bool(left), as_bool(right)) {
                (Some(value), None) => compared(of_expr(right), *op, value),
                (None, Some(value)) => compared(of_expr(left), *op, value),
                _ => opaque([left, right].map(|side| &**side)),
            }
        }
        Expr::Var(Var::Context) => ApprovalUse::Unclear,
        other => opaque(children(other)),
    }
}

/// A value compared with a literal is itself or its opposite.
fn compared(value: ApprovalUse, op: BinaryOp, literal: bool) -> ApprovalUse {
    if (op == BinaryOp::Eq) == literal { value } else { value.flip() }
}

/// Inside anything else no direction can be told.
fn opaque<'a>(parts: impl IntoIterator<Item = &'a Expr>) -> ApprovalUse {
    if parts.into_iter().all(|part| of_expr(part) == ApprovalUse::None) {
        ApprovalUse::None
    } else {
        ApprovalUse::Unclear
    }
}

fn as_bool(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Literal(Literal::Bool(value)) => Some(*value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use cedar_policy::{Policy, pst};

    use super::*;

    fn use_of(policy: &str) -> ApprovalUse {
        match Policy::parse(None, policy).unwrap().to_pst().unwrap() {
            pst::Policy::Static(policy) => ApprovalUse::of(policy.body()),
            other => panic!("not static: {other}"),
        }
    }

    #[test]
    fn a_permit_that_asks_is_widened_by_approval() {
        for policy in [
            "permit(principal, action, resource) when { context.approved };",
            "permit(principal, action, resource) when { context.a && (context.approved || context.b) };",
            "permit(principal, action, resource) unless { !context.approved };",
            "permit(principal, action, resource) when { context.approved == true };",
            "permit(principal, action, resource) when { false != context.approved };",
        ] {
            assert_eq!(use_of(policy), ApprovalUse::Widens, "{policy}");
        }
    }

    #[test]
    fn a_forbid_unless_approved_is_narrowed_by_approval() {
        for policy in [
            "forbid(principal, action, resource) unless { context.approved };",
            "forbid(principal, action, resource) when { context.approved == false };",
        ] {
            assert_eq!(use_of(policy), ApprovalUse::Narrows, "{policy}");
            assert!(use_of(policy).fits(Effect::Forbid) && !use_of(policy).fits(Effect::Permit));
        }
    }

    #[test]
    fn a_direction_that_cannot_be_told_is_unclear() {
        for policy in [
            "permit(principal, action, resource) when { context.approved } unless { context.approved };",
            "permit(principal, action, resource) when { context.approved == context.allowlisted };",
            "permit(principal, action, resource) when { if context.approved then false else true };",
            "permit(principal, action, resource) when { [context.approved].contains(false) };",
            "permit(principal, action, resource) when { context == {approved: false} };",
            "permit(principal, action, resource) when { {a: context}.a.approved };",
        ] {
            assert_eq!(use_of(policy), ApprovalUse::Unclear, "{policy}");
        }
    }

    #[test]
    fn other_conditions_do_not_depend_on_approval() {
        assert_eq!(
            use_of("permit(principal, action, resource) when { context has tier && context.tier == T::\"approved\" };"),
            ApprovalUse::None
        );
        assert_eq!(use_of("permit(principal, action, resource) when { principal.approved };"), ApprovalUse::None);
    }
}
