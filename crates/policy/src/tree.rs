//! Walks Cedar's syntax trees.

use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Clause, Expr, Template, UnaryOp, Var};

/// The direct parts of an expression.
pub(crate) fn children(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::UnaryOp { expr, .. }
        | Expr::GetAttr { expr, .. }
        | Expr::HasAttr { expr, .. }
        | Expr::Like { expr, .. } => {
            vec![expr]
        }
        Expr::BinaryOp { left, right, .. } => vec![left, right],
        Expr::Is { expr, in_expr, .. } => {
            [Some(expr), in_expr.as_ref()].into_iter().flatten().map(|part| &**part).collect()
        }
        Expr::IfThenElse { cond, then_expr, else_expr } => vec![cond, then_expr, else_expr],
        Expr::Set(items) => items.iter().map(|item| &**item).collect(),
        Expr::Record(fields) => fields.values().map(|value| &**value).collect(),
        _ => Vec::new(),
    }
}

/// The conditions of a policy as a list that must all hold, `unless` turned into its opposite.
pub(crate) fn conjuncts(policy: &Template) -> Vec<Arc<Expr>> {
    let mut list = Vec::new();
    for clause in policy.clauses() {
        match clause {
            Clause::When(expr) => push_conjuncts(expr, &mut list),
            Clause::Unless(expr) => push_opposites(expr, &mut list),
        }
    }
    list
}

/// Whether this is the variable `context`.
pub(crate) const fn is_context(expr: &Expr) -> bool {
    matches!(expr, Expr::Var(Var::Context))
}

fn push_conjuncts(expr: &Arc<Expr>, list: &mut Vec<Arc<Expr>>) {
    match &**expr {
        Expr::BinaryOp { op: BinaryOp::And, left, right } => {
            push_conjuncts(left, list);
            push_conjuncts(right, list);
        }
        Expr::UnaryOp { op: UnaryOp::Not, expr } if is_or_not(expr) => push_opposites(expr, list),
        _ => list.push(Arc::clone(expr)),
    }
}

/// `!(a || b)` is `!a && !b`, and `!!a` is `a`.
fn push_opposites(expr: &Arc<Expr>, list: &mut Vec<Arc<Expr>>) {
    match &**expr {
        Expr::BinaryOp { op: BinaryOp::Or, left, right } => {
            push_opposites(left, list);
            push_opposites(right, list);
        }
        Expr::UnaryOp { op: UnaryOp::Not, expr } => push_conjuncts(expr, list),
        _ => list.push(Arc::new(Expr::UnaryOp { op: UnaryOp::Not, expr: Arc::clone(expr) })),
    }
}

const fn is_or_not(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOp::Or, .. } | Expr::UnaryOp { op: UnaryOp::Not, .. })
}
