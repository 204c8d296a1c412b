//! Measurements. Each figure is a ratio against a floor or a peer, taken in one run, because machines differ and are noisy.
