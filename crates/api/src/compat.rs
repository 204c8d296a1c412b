//! What clients of other products ask of models, as far as it is described here.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A request to a model. Whatever else it holds is for the provider, or as `docs/models.md` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AskedOfModel {
    /// The model, as `GET /v1/models` lists it.
    pub model: String,
}

/// Which items are wanted that were sent with a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ItemQuery {
    /// Those behind the item of this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most this many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u8>,
    /// `asc` or `desc`, which is what holds otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^(asc|desc)$")]
    pub order: Option<String>,
}
