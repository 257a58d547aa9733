//! The operations that admission distinguishes, and the set of them that a plugin handles.

/// The operation of a request on an object, as admission rules name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// The object is neither read nor written: a shell, a port.
    Connect,
}

impl Operation {
    pub const ALL: [Operation; 4] =
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

    /// As rules and reviews spell it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// The operations of a resource that an admission plugin handles: of objects alone, or of subresources as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    pub const NONE: Interest = Interest(0);
    pub const CREATE: Interest = Interest(1);
    pub const UPDATE: Interest = Interest(2);
    pub const DELETE: Interest = Interest(4);
    /// Subresources as well; without this only operations on whole objects.
    pub const PARTS: Interest = Interest(8);
    pub const CONNECT: Interest = Interest(16);
    pub const ALL: Interest = Interest(31);

    pub const fn and(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    /// This interest if the condition holds, otherwise none.
    pub fn when(self, condition: bool) -> Interest {
        if condition { self } else { Interest::NONE }
    }

    pub(crate) fn has(self, operation: Operation, subresource: &str) -> bool {
        let operation = match operation {
            Operation::Create => Interest::CREATE,
            Operation::Update => Interest::UPDATE,
            Operation::Delete => Interest::DELETE,
            Operation::Connect => Interest::CONNECT,
        };
        self.0 & operation.0 != 0 && (subresource.is_empty() || self.0 & Interest::PARTS.0 != 0)
    }
}
