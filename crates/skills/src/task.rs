//! A task that ends when nobody waits for it.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
};

/// A task on some runtime. Dropping it stops it.
pub(crate) struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    /// Starts it.
    pub(crate) fn spawn(runtime: &Handle, future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(runtime.spawn(future))
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
