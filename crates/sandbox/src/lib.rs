//! Runs plans: tier B (limits) and, on Linux, everything below it that touches the kernel.
