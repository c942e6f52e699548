//! Lakemark: cli.
