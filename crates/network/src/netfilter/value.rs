//! Values of registers, keys and elements: concatenations of addresses, protocols, ports and numbers.

use std::net::IpAddr;

/// A protocol above IP, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    pub const ICMP: Self = Self(1);
    pub const TCP: Self = Self(6);
    pub const UDP: Self = Self(17);
    pub const ICMPV6: Self = Self(58);
    pub const SCTP: Self = Self(132);

    /// The protocol of a service or container port.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "TCP" => Some(Self::TCP),
            "UDP" => Some(Self::UDP),
            "SCTP" => Some(Self::SCTP),
            _ => None,
        }
    }
}

/// The type of one field of a key or of a map's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldType {
    Ipv4Address,
    Ipv6Address,
    Protocol,
    Port,
    /// A number of 32 bits in the byte order of the machine, such as a mark.
    Number,
    InterfaceName,
}

impl FieldType {
    const ALL: [Self; 6] =
        [Self::Ipv4Address, Self::Ipv6Address, Self::Protocol, Self::Port, Self::Number, Self::InterfaceName];

    pub(super) fn length(self) -> usize {
        match self {
            Self::Protocol => 1,
            Self::Port => 2,
            Self::Ipv4Address | Self::Number => 4,
            Self::Ipv6Address | Self::InterfaceName => 16,
        }
    }

    /// The number of the type in the program `nft`, which shows elements by it. The kernel does not use it.
    fn display_type(self) -> u32 {
        match self {
            Self::Ipv4Address => 7,
            Self::Ipv6Address => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Number => 19,
            Self::InterfaceName => 41,
        }
    }
}

/// The length of a value with fields of these types. Every field of a concatenation fills whole registers.
pub(super) fn length_of(fields: &[FieldType]) -> usize {
    match fields {
        [field] => field.length(),
        _ => fields.iter().map(|field| field.length().next_multiple_of(4)).sum(),
    }
}

/// The number of a concatenated type in the program `nft`: six bits for each field.
pub(super) fn display_type_of(fields: &[FieldType]) -> u32 {
    fields.iter().fold(0, |number, field| number << 6 | field.display_type())
}

/// The fields of a concatenated type, unless one of them is not ours.
pub(super) fn fields_of_display_type(mut number: u32) -> Option<Vec<FieldType>> {
    let mut fields = Vec::new();
    while number != 0 {
        let known = FieldType::ALL.into_iter().find(|field| field.display_type() == number & 0x3f)?;
        fields.insert(0, known);
        number >>= 6;
    }
    Some(fields)
}

/// One field of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Address(IpAddr),
    Protocol(Protocol),
    Port(u16),
    Number(u32),
    InterfaceName(String),
}

/// Encoded fields, as the kernel compares them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Value(Box<[u8]>);

impl Value {
    /// The value of one field, or the concatenation of more.
    pub fn new(fields: &[Field]) -> Self {
        let mut bytes = Vec::with_capacity(fields.len() * 4);
        for field in fields {
            match field {
                Field::Address(IpAddr::V4(address)) => bytes.extend_from_slice(&address.octets()),
                Field::Address(IpAddr::V6(address)) => bytes.extend_from_slice(&address.octets()),
                Field::Protocol(protocol) => bytes.push(protocol.0),
                Field::Port(port) => bytes.extend_from_slice(&port.to_be_bytes()),
                Field::Number(number) => bytes.extend_from_slice(&number.to_ne_bytes()),
                Field::InterfaceName(name) => {
                    let start = bytes.len();
                    bytes.extend_from_slice(&name.as_bytes()[..name.len().min(15)]);
                    bytes.resize(start + 16, 0);
                }
            }
            if fields.len() > 1 {
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
        }
        Self(bytes.into())
    }

    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The fields of a value with these types, unless its length is another.
    pub fn fields(&self, types: &[FieldType]) -> Option<Vec<Field>> {
        if self.0.len() != length_of(types) {
            return None;
        }
        let mut at = 0;
        let field = |field: &FieldType| {
            let bytes = &self.0[at..at + field.length()];
            at += field.length().next_multiple_of(4);
            Some(match field {
                FieldType::Ipv4Address => Field::Address(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
                FieldType::Ipv6Address => Field::Address(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
                FieldType::Protocol => Field::Protocol(Protocol(bytes[0])),
                FieldType::Port => Field::Port(u16::from_be_bytes(bytes.try_into().ok()?)),
                FieldType::Number => Field::Number(u32::from_ne_bytes(bytes.try_into().ok()?)),
                FieldType::InterfaceName => {
                    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                    Field::InterfaceName(String::from_utf8_lossy(&bytes[..end]).into_owned())
                }
            })
        };
        types.iter().map(field).collect()
    }

    /// The value after this one as a number, or nothing after the last.
    pub(super) fn successor(&self) -> Option<Self> {
        let mut bytes = self.0.clone();
        for byte in bytes.iter_mut().rev() {
            let (next, overflow) = byte.overflowing_add(1);
            *byte = next;
            if !overflow {
                return Some(Self(bytes));
            }
        }
        None
    }

    /// The value before this one as a number, or nothing before the first.
    pub(super) fn predecessor(&self) -> Option<Self> {
        let mut bytes = self.0.clone();
        for byte in bytes.iter_mut().rev() {
            let (next, overflow) = byte.overflowing_sub(1);
            *byte = next;
            if !overflow {
                return Some(Self(bytes));
            }
        }
        None
    }

    /// The largest value of this length.
    pub(super) fn all_ones(&self) -> Self {
        Self(vec![0xff; self.0.len()].into())
    }
}

impl From<IpAddr> for Value {
    fn from(address: IpAddr) -> Self {
        Self::new(&[Field::Address(address)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_concatenation_fill_registers() {
        let types = [FieldType::Ipv4Address, FieldType::Protocol, FieldType::Port];
        let fields = [Field::Address([10, 0, 0, 1].into()), Field::Protocol(Protocol::TCP), Field::Port(80)];
        let value = Value::new(&fields);
        assert_eq!(value.as_bytes(), [10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        assert_eq!(value.as_bytes().len(), length_of(&types));
        assert_eq!(value.fields(&types).unwrap(), fields);
        assert_eq!(Value::new(&[Field::Port(80)]).as_bytes(), [0, 80]);
        assert_eq!(value.fields(&types[..2]), None);
    }

    #[test]
    fn neighbours_carry() {
        let value = Value::from_bytes(&[10, 255, 255]);
        assert_eq!(value.successor().unwrap().as_bytes(), [11, 0, 0]);
        assert_eq!(value.successor().unwrap().predecessor(), Some(value.clone()));
        assert_eq!(value.all_ones().successor(), None);
    }
}
