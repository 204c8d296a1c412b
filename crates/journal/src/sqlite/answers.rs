//! How those who wait for a batch hear what came of it.
//!
//! Waking somebody costs more than writing a record, and a thread that is woken may take the place of the one that wakes it. So the writer
//! wakes one of them, who tells the others, most of whom are tasks of its own runtime.
//!
//! Guarantees: everybody hears once, also when the one who was to tell is gone or does not come to it: then the writer tells, soon.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::ready::Ready;
use crate::{
    store::{CommitError, Committed},
    trouble::Trouble,
};

/// What came of a transaction.
type Outcome = Result<Committed, CommitError>;

/// Who waits for a transaction.
pub(super) struct Asker(oneshot::Sender<Answer>);

/// What it waits for.
pub(super) struct Question(oneshot::Receiver<Answer>);

struct Answer {
    outcome: Outcome,
    /// Those whom the one who hears this tells.
    others: Option<Untold>,
    /// What was written. Whoever made it frees it, which is quicker than if another thread does.
    spent: Ready,
}

/// Those who were not told yet.
#[derive(Clone, Default)]
pub(super) struct Untold(Arc<Mutex<Vec<Told>>>);

/// Who hears what, and what it was about.
pub(super) type Told = (Asker, Ready, Outcome);

/// Somebody who waits, by both ends.
pub(super) fn question() -> (Asker, Question) {
    let (sender, receiver) = oneshot::channel();
    (Asker(sender), Question(receiver))
}

impl Question {
    /// Waits for the answer, and tells the others.
    pub(super) async fn answer(self) -> Outcome {
        let Answer { outcome, others, spent } = self.0.await.map_err(|_| Trouble::Closed)?;
        if let Some(others) = others {
            others.tell();
        }
        drop(spent);
        outcome
    }
}

impl Untold {
    /// Tells one of those who wait, who is to tell the others.
    pub(super) fn begin(answers: Vec<Told>) -> Self {
        let untold = Self(Arc::new(Mutex::new(answers)));
        while let Some((asker, spent, outcome)) = untold.next() {
            let others = (!untold.is_empty()).then(|| untold.clone());
            // If it is gone, another one is the first.
            if asker.0.send(Answer { outcome, others, spent }).is_ok() {
                break;
            }
        }
        untold
    }

    /// Whether everybody was told.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Tells all who were not told yet.
    pub(super) fn tell(&self) {
        let untold = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (asker, spent, outcome) in untold {
            let _ = asker.0.send(Answer { outcome, others: None, spent });
        }
    }

    fn next(&self) -> Option<Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn told(first_seq: u64) -> (Told, Question) {
        let (asker, question) = question();
        let spent = Ready { records: Vec::new(), changes: Vec::new() };
        ((asker, spent, Ok(Committed { first_seq, hashes: Vec::new() })), question)
    }

    /// What is heard at once, by the number that was told.
    fn heard(question: Question) -> Option<u64> {
        match pin!(question.answer()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome.unwrap().first_seq),
            Poll::Pending => None,
        }
    }

    #[test]
    fn whoever_hears_first_tells_the_others() {
        let (answers, questions): (Vec<_>, Vec<_>) = (0..4).map(told).unzip();
        let untold = Untold::begin(answers);
        assert!(!untold.is_empty());
        // The last was told.
        let outcomes: Vec<_> = questions.into_iter().rev().map(heard).collect();
        assert_eq!(outcomes, [Some(3), Some(2), Some(1), Some(0)]);
        assert!(untold.is_empty());
    }

    #[test]
    fn everybody_hears_when_the_one_who_was_to_tell_is_gone() {
        let (answers, mut questions): (Vec<_>, Vec<_>) = (0..4).map(told).unzip();
        questions.truncate(2);
        Untold::begin(answers);
        let outcomes: Vec<_> = questions.into_iter().rev().map(heard).collect();
        assert_eq!(outcomes, [Some(1), Some(0)]);
    }

    #[test]
    fn everybody_hears_when_the_one_who_was_to_tell_does_not_come_to_it() {
        for is_dropped in [false, true] {
            let (answers, mut questions): (Vec<_>, Vec<_>) = (0..4).map(told).unzip();
            let untold = Untold::begin(answers);
            let idle = questions.pop();
            if is_dropped {
                drop(idle);
            }
            assert!(!untold.is_empty());
            untold.tell();
            let outcomes: Vec<_> = questions.into_iter().map(heard).collect();
            assert_eq!(outcomes, [Some(0), Some(1), Some(2)]);
        }
    }
}
