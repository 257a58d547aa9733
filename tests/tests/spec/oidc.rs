//! "Authentication": providers of identity elsewhere.
