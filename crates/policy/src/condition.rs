//! The conditions of a policy one by one, as they can be put to Cedar on their own.
//!
//! Guarantees: each is read once, when somebody first asks for it. Most policies of a large set are never taken apart, so loading does not do it.

use std::{str::FromStr, sync::Arc};

use cedar_policy::{
    Entities, EvalResult, Expression, Request, eval_expression,
    pst::{Expr, Template},
};

use crate::{demand::Demands, tree::conjuncts};

/// One of the conditions that must all hold.
pub(crate) struct Condition {
    pub(crate) expr: Arc<Expr>,
    /// What it looks at in the context.
    pub(crate) demands: Demands,
    /// The same as Cedar evaluates it, or why that cannot be had.
    read: Result<Expression, String>,
}

impl Condition {
    /// The conditions of a policy, in its order.
    pub(crate) fn all_of(policy: &Template) -> Box<[Self]> {
        conjuncts(policy).into_iter().map(Self::new).collect()
    }

    fn new(expr: Arc<Expr>) -> Self {
        Self { demands: Demands::of_condition(&expr), read: read(&expr), expr }
    }

    /// What it comes to.
    pub(crate) fn evaluate(&self, question: &Request, entities: &Entities) -> Result<EvalResult, String> {
        eval_expression(question, entities, self.read.as_ref().map_err(Clone::clone)?)
            .map_err(|error| error.to_string())
    }
}

/// What a part of a condition comes to.
pub(crate) fn evaluate(expr: &Expr, question: &Request, entities: &Entities) -> Result<EvalResult, String> {
    eval_expression(question, entities, &read(expr)?).map_err(|error| error.to_string())
}

/// Cedar takes expressions as text alone.
fn read(expr: &Expr) -> Result<Expression, String> {
    Expression::from_str(&expr.to_string()).map_err(|error| error.to_string())
}
