//! MCP servers behind the gateway: how the daemon talks to them.
