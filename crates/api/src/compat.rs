//! What clients of other products ask of models, as far as it is described here.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request to a model. Whatever else it holds is for the provider, or as `docs/models.md` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AskedOfModel {
    /// The model, as `GET /v1/models` lists it.
    pub model: String,
}
