//! Contents that are too long: cut where it hurts least, and marked.
//!
//! Guarantees: what comes out is JSON that fits; what fits is not touched; wherever something was left out, the text says how much.

use serde_json::{Value, json};

/// A content that fits into so many bytes of JSON, that JSON, and whether something was left out.
///
/// First long texts inside it are cut, the shape stays. Only if that does not help is it a text itself: the beginning of its JSON.
pub(super) fn to_fit(content: &Value, room: usize) -> (Value, String, bool) {
    let text = content.to_string();
    if text.len() <= room {
        return (content.clone(), text, false);
    }
    let mut longest = room;
    while longest >= SHORTEST {
        let shorter = with_short_texts(content, longest);
        let written = shorter.to_string();
        if written.len() <= room {
            return (shorter, written, true);
        }
        longest /= 2;
    }
    let mut longest = room;
    loop {
        let beginning = Value::String(shortened(&text, longest));
        let shorter = json!({ "cut": beginning });
        let written = shorter.to_string();
        if written.len() <= room || longest == 0 {
            return (shorter, written, true);
        }
        longest /= 2;
    }
}

/// The same content, with texts of at most so many bytes.
fn with_short_texts(content: &Value, longest: usize) -> Value {
    match content {
        Value::String(text) => Value::String(shortened(text, longest)),
        Value::Array(items) => items.iter().map(|item| with_short_texts(item, longest)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), with_short_texts(value, longest))).collect()
        }
        other => other.clone(),
    }
}

fn shortened(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let kept = text.get(..text.floor_char_boundary(longest.saturating_sub(MARK_BYTES))).unwrap_or_default();
    format!("{kept}… [cut: {} bytes left out]", text.len() - kept.len())
}

/// Texts are not cut shorter than this.
const SHORTEST: usize = 128;
/// Room for the mark.
const MARK_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_is_not_touched() {
        let content = json!({ "text": "hello", "list": [1, null] });
        assert_eq!(to_fit(&content, 1024), (content.clone(), content.to_string(), false));
    }

    #[test]
    fn a_long_text_is_cut_where_it_stands_and_the_rest_stays() {
        let content = json!({ "type": "output", "text": "é".repeat(5000), "code": 7 });
        let (shorter, written, cut) = to_fit(&content, 2048);
        assert!(cut && written.len() <= 2048);
        assert_eq!((&shorter["type"], &shorter["code"]), (&json!("output"), &json!(7)));
        let text = shorter["text"].as_str().unwrap();
        let kept = text.chars().take_while(|&c| c == 'é').count();
        assert_eq!(text, format!("{}… [cut: {} bytes left out]", "é".repeat(kept), (5000 - kept) * 2));
        assert!(kept > 400, "{kept}");
    }

    #[test]
    fn what_is_long_without_a_long_text_becomes_the_beginning_of_its_json() {
        let content: Value = (0..5000).collect();
        let (shorter, written, cut) = to_fit(&content, 2048);
        assert!(cut && written.len() <= 2048);
        assert!(shorter["cut"].as_str().unwrap().starts_with("[0,1,2,3"));
        assert!(shorter["cut"].as_str().unwrap().ends_with("bytes left out]"));
    }

    proptest! {
        #[test]
        fn whatever_is_cut_fits_and_reads_back(
            texts in prop::collection::vec(any::<String>(), 0..40),
            long in "[\\x00-\\x7f]{0,3000}",
            room in 1024..4096_usize,
        ) {
            let content = json!({ "texts": texts, "long": long });
            let (shorter, written, cut) = to_fit(&content, room);
            prop_assert!(written.len() <= room);
            prop_assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), shorter.clone());
            prop_assert_eq!(cut, shorter != content);
        }
    }
}
