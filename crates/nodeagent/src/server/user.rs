//! Users of requests.

/// A user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewedUser {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    /// Further attributes, as JSON.
    pub extra: String,
}

/// The user that a client certificate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateUser {
    Absent,
    Invalid,
    Valid(ReviewedUser),
}
