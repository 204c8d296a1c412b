//! The wire format of the Embeddings API.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

/// A list of vectors, as numbers or packed, as the request says. Clients ask for them packed unless they are told otherwise.
pub(super) fn list(vectors: &[Vec<f32>], asked: &Value) -> Value {
    let packed = asked.get("encoding_format") == Some(&json!("base64"));
    let vector = |vector: &Vec<f32>| match packed {
        true => json!(BASE64_STANDARD.encode(vector.iter().flat_map(|part| part.to_le_bytes()).collect::<Vec<u8>>())),
        false => json!(vector),
    };
    let data = vectors.iter().enumerate();
    let data: Vec<Value> =
        data.map(|(index, one)| json!({ "object": "embedding", "index": index, "embedding": vector(one) })).collect();
    let tokens = 4 * vectors.len();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    json!({ "object": "list", "data": data, "model": asked.get("model"), "usage": usage })
}

/// A vector for each input, the same for the same input: its length in bytes, its first byte, and a half.
pub(super) fn made_up(asked: &Value) -> Vec<Vec<f32>> {
    let input = asked.get("input").cloned().unwrap_or_default();
    let inputs = match &input {
        // One list of tokens is one input.
        Value::Array(all) if !all.iter().all(Value::is_number) => all.clone(),
        _ => vec![input],
    };
    let vector = |input: &Value| {
        let text = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        vec![f32::from(length), f32::from(text.bytes().next().unwrap_or_default()), 0.5]
    };
    inputs.iter().map(vector).collect()
}
